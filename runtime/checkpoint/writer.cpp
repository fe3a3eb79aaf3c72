#include "runtime/checkpoint/writer.h"

#include "runtime/checkpoint/pieces.h"
#include "runtime/data/array.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

namespace zerocc {

constexpr const char *kPartial = ".partial", *kBestName = "best";

static const char *safetensorsType(DType dtype) {
  switch (dtype) {
  case DType::f32:
    return "F32";
  case DType::f64:
    return "F64";
  case DType::f16:
    return "F16";
  case DType::bf16:
    return "BF16";
  case DType::i64:
    return "I64";
  case DType::i32:
    return "I32";
  case DType::i16:
    return "I16";
  case DType::i8:
    return "I8";
  case DType::u64:
    return "U64";
  case DType::u32:
    return "U32";
  case DType::u16:
    return "U16";
  case DType::u8:
    return "U8";
  case DType::boolean:
    return "BOOL";
  }
  return "";
}

/// Makes the folders of a path that are not there; their entries are synced.
static Status makeFolders(Files &files, const std::string &path) {
  std::vector<std::string> names;
  if (path.empty() || files.list(path, names) == 0)
    return success();
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
  if (slash != std::string::npos && slash > 0)
    ZEROCC_TRY(makeFolders(files, parent));
  if (int result = files.makeFolder(path); result < 0 && result != -EEXIST)
    return fileError(path, "cannot be made", result);
  if (int result = files.syncFolder(parent.empty() ? "/" : parent); result < 0)
    return fileError(parent, "cannot be flushed to disk", result);
  return success();
}

Expected<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(Files &files, const plan::Plan &plan,
                                                                     RankGroup &group,
                                                                     const CheckpointOptions &options,
                                                                     CheckpointIndex head) {
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(files, plan, group, options));
  std::string &folder = writer->options_.folder;
  while (folder.size() > 1 && folder.back() == '/')
    folder.pop_back();
  ZEROCC_ASSIGN(writer->processes_, group.processes().another());
  Processes &processes = *writer->processes_;
  ZEROCC_TRY(agree(processes, processes.isFirst() ? writer->findEarlier() : success()));
  ZEROCC_TRY(processes.broadcast(0, &writer->number_, sizeof writer->number_));

  std::map<std::string, CheckpointTensor> tensors;
  for (LogicalTensor &tensor : logicalTensors(plan))
    tensors[tensor.name] = {tensor.name, tensor.dtype, tensor.dims, {}};
  for (auto &[name, tensor] : tensors)
    head.tensors.push_back(std::move(tensor));
  head.scalars = scalarNames(plan);
  if (const CheckpointTensor *scalars = head.find("scalars"))
    head.scalars.resize(scalars->dims[0]);
  for (int rank = 0; rank < group.ranks(); ++rank)
    writer->layOut(rank, head);
  for (CheckpointTensor &tensor : head.tensors)
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const CheckpointPiece &a, const CheckpointPiece &b) { return a.begin < b.begin; });
  writer->index_ = std::move(head);
  writer->thread_ = std::thread([w = writer.get()] { w->work(); });
  return writer;
}

/// What earlier runs have left in the folder, which is made.
Status CheckpointWriter::findEarlier() {
  const std::string &folder = options_.folder;
  ZEROCC_TRY(makeFolders(files_, folder));
  for (const std::string &name : listCheckpoints(files_, folder))
    number_ = std::max(number_, checkpointNumber(name));
  if (auto best = readSmallFile(files_, folder + "/" + kBestName, 4096))
    best_ = best->substr(0, best->find('\n'));
  return success();
}

/// A rank's file: larger elements first, as the format advises, then by name. A piece that is all of a tensor goes by
/// its name and dims, others by STATE/NAME[begin:end].
void CheckpointWriter::layOut(int rank, CheckpointIndex &index) {
  std::vector<RankPiece> pieces = piecesToSave(plan_, rank);
  std::sort(pieces.begin(), pieces.end(), [](const RankPiece &a, const RankPiece &b) {
    const int64_t sizeA = byteSize(a.dtype), sizeB = byteSize(b.dtype);
    return std::tie(sizeB, a.tensor, a.begin) < std::tie(sizeA, b.tensor, b.begin);
  });
  Image &image = images_.emplace_back();
  std::string head;
  llvm::raw_string_ostream stream(head);
  llvm::json::OStream out(stream);
  int64_t at = 0;
  out.object([&] {
    out.attributeObject("__metadata__", [&] { out.attribute("format", "zerocc.checkpoint"); });
    for (const RankPiece &piece : pieces) {
      const CheckpointTensor *tensor = index.find(piece.tensor);
      const int64_t bytes = (piece.end - piece.begin) * byteSize(piece.dtype);
      const bool isAll = piece.begin == 0 && piece.end == countElements(tensor->dims);
      out.attributeObject(isAll ? piece.tensor
                                : piece.tensor + "[" + std::to_string(piece.begin) + ":" +
                                      std::to_string(piece.end) + "]",
                          [&] {
                            out.attribute("dtype", safetensorsType(piece.dtype));
                            out.attributeArray("shape", [&] {
                              if (!isAll)
                                out.value(piece.end - piece.begin);
                              else
                                for (int64_t dim : tensor->dims)
                                  out.value(dim);
                            });
                            out.attributeArray("data_offsets", [&] {
                              out.value(at);
                              out.value(at + bytes);
                            });
                          });
      image.copies.push_back({piece.region, piece.offset, bytes, at});
      at += bytes;
    }
  });
  stream.flush();
  head.append((8 - head.size() % 8) % 8, ' ');
  const uint64_t headBytes = head.size();
  const int64_t dataAt = static_cast<int64_t>(8 + headBytes);
  image.size = dataAt + at;
  if (group_.isHere(rank)) {
    image.bytes.reset(new unsigned char[static_cast<size_t>(image.size)]());
    std::memcpy(image.bytes.get(), &headBytes, 8);
    std::memcpy(image.bytes.get() + 8, head.data(), head.size());
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    image.copies[i].at += dataAt;
    if (pieces[i].begin == pieces[i].end)
      continue; // a tensor without elements
    auto tensor = const_cast<CheckpointTensor *>(index.find(pieces[i].tensor));
    tensor->pieces.push_back({rank, image.copies[i].at, pieces[i].begin, pieces[i].end});
  }
  index.files.push_back({"rank-" + std::to_string(rank) + ".safetensors", image.size, {}});
}

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable())
    return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t CheckpointWriter::stagingBytes() const {
  int64_t bytes = 0;
  for (const Image &image : images_)
    bytes += image.size;
  return bytes;
}

Status CheckpointWriter::save(int64_t step, int64_t samples, bool isBest, const EvalRecord &eval,
                              const std::string &pipeToken) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
  }
  auto copyOut = [&](Executor &executor) -> Status {
    Image &image = images_[executor.rank()];
    for (const Copy &copy : image.copies)
      if (copy.bytes > 0)
        std::memcpy(image.bytes.get() + copy.at, executor.address(copy.region, copy.offset),
                    static_cast<size_t>(copy.bytes));
    return success();
  };
  ZEROCC_TRY(group_.forEachRank(std::ref(copyOut)));
  index_.step = step;
  index_.data.samples = samples;
  index_.data.pipeToken = pipeToken;
  index_.eval = eval;
  isBest_ = isBest;
  {
    std::lock_guard lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
  return success();
}

std::optional<CheckpointWriter::Saved> CheckpointWriter::outcome(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait)
    changed_.wait(lock, [&] { return !busy_; });
  std::optional<Saved> taken;
  taken.swap(outcome_);
  return taken;
}

// --- the writing thread

void CheckpointWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return busy_ || stop_; });
    if (!busy_)
      return;
    lock.unlock();
    Status status = write(), cleanup = status && processes_->isFirst() ? prune() : success();
    lock.lock();
    outcome_ = Saved{options_.folder + "/" + name_, std::move(status), std::move(cleanup)};
    busy_ = false;
    changed_.notify_all();
  }
}

Status CheckpointWriter::writeFile(const std::string &path, const void *bytes, int64_t count,
                                   std::vector<uint64_t> *checksums) {
  const int file = files_.create(path);
  if (file < 0)
    return fileError(path, "cannot be written", file);
  Status status = success();
  for (int64_t at = 0; status && at < count; at += kChecksumBlockBytes) {
    const char *block = static_cast<const char *>(bytes) + at;
    const int64_t blockBytes = std::min(kChecksumBlockBytes, count - at);
    if (checksums)
      checksums->push_back(blockChecksum(block, blockBytes));
    status = writeAll(files_, file, path, block, blockBytes);
  }
  if (int result = status ? files_.sync(file) : 0; result < 0)
    status = fileError(path, "cannot be flushed to disk", result);
  if (int result = files_.close(file); result < 0 && status)
    status = fileError(path, "cannot be written", result);
  return status;
}

/// Every step of it is one of all processes, so that they know alike whether the checkpoint is there.
Status CheckpointWriter::write() {
  char number[32];
  std::snprintf(number, sizeof number, "%06lld", static_cast<long long>(++number_));
  name_ = std::string(number) + "-step-" + std::to_string(index_.step);
  const std::string path = options_.folder + "/" + name_, beside = path + kPartial;
  const bool isFirst = processes_->isFirst();
  auto fill = [&]() -> Status {
    ZEROCC_TRY(agree(*processes_, isFirst ? makeBeside(beside) : success()));
    ZEROCC_TRY(agree(*processes_, writeFiles(beside)));
    ZEROCC_TRY(collectChecksums());
    return agree(*processes_, isFirst ? putIntoPlace(beside, path) : success());
  };
  Status filled = fill();
  if (!filled && isFirst)
    (void)removeFolder(beside); // give back the space
  return filled;
}

Status CheckpointWriter::makeBeside(const std::string &beside) {
  ZEROCC_TRY(removeFolder(beside));
  if (int result = files_.makeFolder(beside); result < 0)
    return fileError(beside, "cannot be made", result);
  return success();
}

/// Those of the ranks of this process.
Status CheckpointWriter::writeFiles(const std::string &beside) {
  for (size_t rank = 0; rank < images_.size(); ++rank) {
    CheckpointFile &file = index_.files[rank];
    file.checksums.clear();
    if (group_.isHere(static_cast<int>(rank)))
      ZEROCC_TRY(writeFile(beside + "/" + file.name, images_[rank].bytes.get(), images_[rank].size, &file.checksums));
  }
  return success();
}

Status CheckpointWriter::collectChecksums() {
  if (processes_->size() == 1)
    return success();
  const std::vector<uint64_t> &own = index_.files[group_.firstHere()].checksums;
  ZEROCC_ASSIGN(auto texts, gatherTexts(*processes_, std::string(reinterpret_cast<const char *>(own.data()), own.size() * 8)));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    index_.files[rank].checksums.resize(texts[rank].size() / 8);
    std::memcpy(index_.files[rank].checksums.data(), texts[rank].data(), texts[rank].size());
  }
  return success();
}

Status CheckpointWriter::putIntoPlace(const std::string &beside, const std::string &path) {
  const std::string text = writeIndex(index_);
  ZEROCC_TRY(writeFile(beside + "/" + kIndexName, text.data(), static_cast<int64_t>(text.size()), nullptr));
  if (int result = files_.syncFolder(beside); result < 0)
    return fileError(beside, "cannot be flushed to disk", result);
  if (int result = files_.rename(beside, path); result < 0)
    return fileError(path, "cannot be put into place", result);
  if (int result = files_.syncFolder(options_.folder); result < 0)
    return fileError(options_.folder, "cannot be flushed to disk", result);
  if (!isBest_)
    return success();
  const std::string best = options_.folder + "/" + kBestName, bestText = name_ + "\n";
  ZEROCC_TRY(writeFile(best + kPartial, bestText.data(), static_cast<int64_t>(bestText.size()), nullptr));
  if (int result = files_.rename(best + kPartial, best); result < 0)
    return fileError(best, "cannot be put into place", result);
  if (int result = files_.syncFolder(options_.folder); result < 0)
    return fileError(options_.folder, "cannot be flushed to disk", result);
  best_ = name_;
  return success();
}

/// Removes the oldest, and what earlier saves have left unfinished. A checkpoint loses its name before its files.
Status CheckpointWriter::prune() {
  std::vector<std::string> names = listCheckpoints(files_, options_.folder), all;
  for (size_t i = 0; i + static_cast<size_t>(options_.keep) < names.size(); ++i) {
    const std::string path = options_.folder + "/" + names[i];
    if (names[i] == best_)
      continue;
    if (int result = files_.rename(path, path + kPartial); result < 0)
      return fileError(path, "cannot be removed", result);
  }
  if (int result = files_.list(options_.folder, all); result < 0)
    return fileError(options_.folder, "cannot be read", result);
  for (const std::string &name : all) {
    const size_t end = name.rfind(kPartial);
    if (end != std::string::npos && checkpointNumber(name.substr(0, end)) > 0)
      ZEROCC_TRY(removeFolder(options_.folder + "/" + name));
  }
  return success();
}

Status CheckpointWriter::removeFolder(const std::string &path) {
  std::vector<std::string> names;
  if (int result = files_.list(path, names); result < 0 && result != -ENOTDIR)
    return result == -ENOENT ? success() : Status(fileError(path, "cannot be removed", result));
  for (const std::string &name : names)
    if (int result = files_.remove(path + "/" + name); result < 0)
      return fileError(path + "/" + name, "cannot be removed", result);
  if (int result = files_.remove(path); result < 0)
    return fileError(path, "cannot be removed", result);
  return success();
}

} // namespace zerocc
