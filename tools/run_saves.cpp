#include "tools/run_saves.h"

#include "runtime/data/atomic_file.h"
#include "runtime/plan/plan.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Host.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace zerocc {
namespace {

constexpr int kStopSignals[] = {SIGTERM, SIGUSR1};
std::atomic<int> stopSignal{0};
static_assert(std::atomic<int>::is_always_lock_free, "set by a signal handler");

void onStopSignal(int signal) { stopSignal = signal; }

Error withHint(const Error &error, const std::string &hint) {
  std::vector<Diagnostic> findings = error.findings();
  findings.back().hint = hint;
  return Error(std::move(findings));
}

Error offering(const Error &error, const std::string &path, const std::string &except) {
  if (auto whole = lastWholeCheckpoint(systemFiles(), path, except))
    return withHint(error, "the last whole checkpoint is " + *whole + ": go on from it with --resume " + *whole);
  return withHint(error, "there is no other whole checkpoint beside it: begin again without --resume");
}

/// XXH3-64 of this program's file.
std::string ownDigest() {
  auto file = MappedFile::open("/proc/self/exe");
  return file ? hex16(XXH3_64bits((*file)->bytes().data(), (*file)->bytes().size())) : "";
}

std::string runText(const plan::Plan &plan, const DataPosition &data, const RunRecord &record) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream out(stream, 2);
  auto list = [&](llvm::StringRef key, const std::vector<std::string> &values) {
    out.attributeArray(key, [&] {
      for (const std::string &value : values)
        out.value(indexName(value));
    });
  };
  auto sources = [&](llvm::StringRef key, const DataSet &data) {
    out.attributeArray(key, [&] {
      for (const SourceDigest &digest : data.digests())
        out.object([&] {
          out.attribute("input", indexName(digest.input));
          out.attribute("source", indexName(digest.source));
          out.attribute("files", digest.files);
          out.attribute("bytes", digest.bytes);
          out.attribute("xxh3_64", hex16(digest.digest)); // of what: ShardedArray::digest
        });
    });
  };
  out.object([&] {
    out.attribute("schema", "zerocc.run/1");
    list("command", record.commandLine);
    out.attributeObject("plan", [&] {
      out.attribute("file", indexName(record.planFile));
      out.attribute("fingerprint", planFingerprint(plan));
      out.attribute("numerics_key", indexName(plan.numerics_key()));
      out.attribute("model_file", indexName(plan.provenance().model_file()));
      out.attribute("model_fingerprint", plan.provenance().model_fingerprint());
      out.attribute("compiler_version", indexName(plan.provenance().compiler_version()));
    });
    out.attributeObject("data", [&] {
      out.attribute("fingerprint", data.fingerprint);
      out.attribute("seed", std::to_string(data.seed));
      out.attribute("shuffle", data.shuffle);
      list("inputs", record.data->describe());
      sources("sources", *record.data);
      if (record.evalData)
        sources("eval_sources", *record.evalData);
    });
    out.attribute("resumed_from", indexName(record.resumedFrom));
    out.attributeObject("binary", [&] {
      out.attribute("version", "zero-run 0.1.0");
      out.attribute("xxh3_64", ownDigest());
    });
    out.attributeObject("cpu", [&] {
      out.attribute("name", llvm::sys::getHostCPUName());
      llvm::StringMap<bool> features;
      std::vector<std::string> names;
      if (llvm::sys::getHostCPUFeatures(features))
        for (const auto &feature : features)
          if (feature.getValue())
            names.push_back(feature.getKey().str());
      std::sort(names.begin(), names.end());
      list("features", names);
    });
  });
  stream << "\n";
  return stream.str();
}

Status writeRunRecord(const std::string &path, const std::string &text) {
  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path));
  ZEROCC_TRY(file.write(text));
  return file.commit();
}

} // namespace

Expected<std::shared_ptr<const Checkpoint>> openCheckpoint(const std::string &path) {
  Files &files = systemFiles();
  ZEROCC_ASSIGN(std::string chosen, findCheckpoint(files, path));
  auto checkpoint = Checkpoint::open(files, chosen);
  if (!checkpoint)
    return offering(checkpoint.error(), chosen, chosen);
  return checkpoint;
}

Error offeringLastWhole(const Error &error, const Checkpoint &checkpoint) {
  if (checkpoint.verify())
    return error;
  return offering(error, checkpoint.path(), checkpoint.path());
}

Expected<std::unique_ptr<RunSaves>> RunSaves::create(const plan::Plan &plan, Trainer &trainer, const SaveFlags &flags,
                                                     const DataPosition &data, const RunRecord &record) {
  if (flags.folder.empty())
    return std::unique_ptr<RunSaves>();
  std::unique_ptr<RunSaves> saves(new RunSaves(trainer, flags, *record.data));
  CheckpointIndex head;
  head.modelFile = plan.provenance().model_file();
  head.modelFingerprint = plan.provenance().model_fingerprint();
  head.planFingerprint = planFingerprint(plan);
  head.numericsKey = plan.numerics_key();
  head.optimizer = plan.facts().optimizer();
  head.precision = plan.facts().precision();
  head.shard = static_cast<int64_t>(plan.mesh().shard());
  head.replicate = static_cast<int64_t>(plan.mesh().replicate());
  head.data = data;
  ZEROCC_ASSIGN(saves->writer_, CheckpointWriter::create(systemFiles(), plan, trainer.group(),
                                                         {flags.folder, flags.keep}, std::move(head)));
  Processes &processes = trainer.group().processes();
  ZEROCC_TRY(agree(processes, processes.isFirst() ? saves->takeFolder(runText(plan, data, record)) : success()));
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    ::sigaction(kStopSignals[i], nullptr, &saves->before_[i]);
  saves->isCaught_ = true;
  catchSignals();
  return saves;
}

Status RunSaves::takeFolder(const std::string &runText) {
  const std::string folder = writer_->folder(), lock = folder + "/lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    return fileError(lock, "cannot be written", -errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error("--save " + flags_.folder + ": another run saves there now", "give each run a folder of its own");
  return writeRunRecord(folder + "/run.json", runText);
}

void RunSaves::catchSignals() {
  struct sigaction action = {};
  action.sa_handler = onStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : kStopSignals)
    ::sigaction(signal, &action, nullptr);
}

RunSaves::~RunSaves() {
  writer_.reset();
  if (isCaught_)
    for (size_t i = 0; i < std::size(kStopSignals); ++i)
      ::sigaction(kStopSignals[i], &before_[i], nullptr);
  if (lock_ >= 0)
    ::close(lock_);
}

const std::atomic<int> &RunSaves::stopSignal() { return ::zerocc::stopSignal; }

void RunSaves::report(bool wait) {
  std::optional<CheckpointWriter::Saved> saved = writer_->outcome(wait);
  if (!saved)
    return;
  if (saved->status) {
    lastSaved_ = saved->path;
    failure_.reset();
    if (!saved->cleanup)
      std::fputs(("note: " + saved->path + " is saved, but " + saved->cleanup.error().findings()[0].message + "\n").c_str(), stderr);
    return;
  }
  failure_ = saved->status.error();
  savedStep_ = -1;
  std::fputs(saved->status.error().text().c_str(), stderr);
  std::fprintf(stderr, "note: %s was not saved; training goes on\n", escapeForTerminal(saved->path).c_str());
}

Status RunSaves::save(bool isBest) {
  report(true); // of the one before
  savedStep_ = trainer_.stepsDone();
  ZEROCC_ASSIGN(std::string token, data_.resumeToken(trainer_.samplesTaken()));
  return writer_->save(trainer_.stepsDone(), trainer_.samplesTaken(), isBest, eval_, token);
}

Status RunSaves::afterStep(bool isBest, const EvalRecord &eval) {
  eval_ = eval;
  report(false);
  const bool isDue = flags_.every > 0 && trainer_.stepsDone() % flags_.every == 0;
  isBest &= flags_.keepBest;
  return isDue || isBest ? save(isBest) : success();
}

Status RunSaves::finish() {
  report(true);
  if (savedStep_ == trainer_.stepsDone())
    return success();
  ZEROCC_TRY(save(false));
  report(true);
  return failure_ ? Status(*failure_) : success();
}

} // namespace zerocc
