#pragma once

#include "compiler/support/expected.h"
#include "runtime/data/array.h"

#include <string>
#include <vector>

namespace zerocc {

/// Arrays of one or many files joined along their leading dim: one logical stream of tokens, or one array of samples. All
/// files are mapped, so that what nobody reads costs addresses and no memory.
class ShardedArray {
public:
  struct Shard {
    std::string path;
    ArrayView array;
  };
  /// Files must agree in element type and in all dims but the leading one. At least one shard, none of 0 dims.
  static Expected<ShardedArray> join(std::vector<Shard> shards);

  ElementType type() const { return shards_[0].array.type; }
  const std::vector<int64_t> &dims() const { return dims_; }
  int64_t elements() const { return begins_.back(); }
  const std::vector<Shard> &shards() const { return shards_; }
  /// Elements of one index of the leading dim.
  int64_t rowElements() const { return rowElements_; }

  /// Converts `count` elements from `element` on, across the ends of files. As `convert`: the first bad element, or -1.
  int64_t read(int64_t element, int64_t count, DType to, void *target, const IntegerRange &range) const;

  /// The file that holds an element, and where in it.
  struct Place {
    const Shard *shard = nullptr;
    int64_t element = 0;
  };
  Place locate(int64_t element) const;
  int64_t bytes() const { return elements() * byteSize(type()); }
  /// XXH3-64 over sizes and bytes: all of them up to 16 MiB in one file; else evenly spaced stretches of 64 KiB, the first
  /// and the last among them, 256 in all, but at least two of each file. Names do not count.
  uint64_t digest() const;

private:
  std::vector<Shard> shards_;
  std::vector<int64_t> begins_; // first element of each shard; then the end of the last
  std::vector<int64_t> dims_;
  int64_t rowElements_ = 1;
};

/// The files a path stands for, sorted by the bytes of their names: itself when it exists or holds none of * ? [, else
/// what it matches as a shell's pattern.
Expected<std::vector<std::string>> expandPattern(const std::string &pattern);

} // namespace zerocc
