#include "runtime/data/shards.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <glob.h>

namespace zerocc {

/// Far below what the kernel lets one process map (65,530 by default).
constexpr size_t kMostFiles = 32768;

Expected<ShardedArray> ShardedArray::join(std::vector<Shard> shards) {
  assert(!shards.empty() && "no file");
  ShardedArray joined;
  const ArrayView &first = shards[0].array;
  joined.dims_ = first.dims;
  joined.dims_[0] = 0;
  int64_t at = 0;
  for (const Shard &shard : shards) {
    const ArrayView &array = shard.array;
    if (array.type != first.type)
      return Error(shard.path + ": holds " + std::string(elementTypeName(array.type)) + ", " + shards[0].path + " " +
                       std::string(elementTypeName(first.type)),
                   "the files of one source are of one type");
    if (!std::equal(array.dims.begin() + 1, array.dims.end(), first.dims.begin() + 1, first.dims.end()))
      return Error(shard.path + ": has dims " + dimsText(array.dims) + ", " + shards[0].path + " " + dimsText(first.dims),
                   "the files of one source differ in their leading dim only");
    joined.begins_.push_back(at);
    if (__builtin_add_overflow(at, array.elements, &at) || __builtin_add_overflow(joined.dims_[0], array.dims[0], &joined.dims_[0]) ||
        at > (int64_t(1) << 59))
      return Error(shard.path + ": the files before it and this one hold more than 2^59 elements");
  }
  joined.begins_.push_back(at);
  for (size_t i = 1; i < joined.dims_.size(); ++i)
    joined.rowElements_ *= joined.dims_[i]; // countElements of each file has held
  joined.shards_ = std::move(shards);
  return joined;
}

ShardedArray::Place ShardedArray::locate(int64_t element) const {
  const size_t shard = std::upper_bound(begins_.begin(), begins_.end() - 1, element) - begins_.begin() - 1;
  return {&shards_[shard], element - begins_[shard]};
}

int64_t ShardedArray::read(int64_t element, int64_t count, DType to, void *target, const IntegerRange &range) const {
  assert(element >= 0 && count >= 0 && element + count <= elements());
  auto *out = static_cast<char *>(target);
  for (int64_t done = 0; done < count;) {
    const Place place = locate(element + done);
    const ArrayView &array = place.shard->array;
    const int64_t part = std::min(count - done, array.elements - place.element);
    const int64_t bad = convert(array.type, array.data + place.element * byteSize(array.type), part, to,
                                out + done * byteSize(to), range);
    if (bad >= 0)
      return done + bad;
    done += part;
  }
  return -1;
}

uint64_t ShardedArray::digest() const {
  constexpr int64_t kStretchBytes = 64 << 10, kStretches = 256;
  const int64_t each = std::max<int64_t>(kStretches / static_cast<int64_t>(shards_.size()), 2);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Shard &shard : shards_) {
    const int64_t bytes = shard.array.bytes(), type = static_cast<int64_t>(shard.array.type);
    XXH3_64bits_update(&state, &bytes, sizeof bytes);
    XXH3_64bits_update(&state, &type, sizeof type);
    if (bytes <= each * kStretchBytes) {
      XXH3_64bits_update(&state, shard.array.data, static_cast<size_t>(bytes));
      continue;
    }
    for (int64_t i = 0; i < each; ++i) {
      const auto at = static_cast<int64_t>(__int128(bytes - kStretchBytes) * i / (each - 1));
      XXH3_64bits_update(&state, shard.array.data + at, kStretchBytes);
    }
  }
  return XXH3_64bits_digest(&state);
}

Expected<std::vector<std::string>> expandPattern(const std::string &pattern) {
  std::error_code ignored;
  if (pattern.find_first_of("*?[") == std::string::npos || std::filesystem::exists(pattern, ignored))
    return std::vector<std::string>{pattern};
  glob_t found = {};
  const int failure = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (failure == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (failure != 0 && failure != GLOB_NOMATCH)
    return Error(pattern + ": its folders cannot be read");
  if (paths.empty())
    return Error(pattern + ": matches no file", "quote the pattern, so that the shell leaves it alone");
  if (paths.size() > kMostFiles)
    return Error(pattern + ": matches " + std::to_string(paths.size()) + " files, at most " + std::to_string(kMostFiles) +
                     " can be mapped",
                 "join them into larger ones");
  std::sort(paths.begin(), paths.end());
  return paths;
}

} // namespace zerocc
