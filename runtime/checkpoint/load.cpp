#include "runtime/checkpoint/load.h"

#include "runtime/checkpoint/pieces.h"
#include "runtime/data/array.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/scalars.h"

#include <algorithm>

namespace zerocc {

Status checkCheckpoint(const plan::Plan &plan, const Checkpoint &checkpoint) {
  const CheckpointIndex &index = checkpoint.index();
  const std::string &model = plan.provenance().model_fingerprint();
  if (model != index.modelFingerprint)
    return Error(checkpoint.path() + ": is of another model: " + index.modelFile + " with fingerprint " +
                     index.modelFingerprint + ", the plan's is " + plan.provenance().model_file() + " with " + model,
                 "resume with a plan compiled from " + index.modelFile);
  constexpr size_t kMostFindings = 20;
  std::vector<Diagnostic> findings;
  const std::string optimizers =
      index.optimizer == plan.facts().optimizer()
          ? ""
          : " (the checkpoint was made with optimizer " + index.optimizer + ", the plan has " +
                plan.facts().optimizer() + ")";
  const std::vector<LogicalTensor> wanted = logicalTensors(plan);
  for (const LogicalTensor &tensor : wanted) {
    const CheckpointTensor *saved = index.find(tensor.name);
    if (tensor.name == "scalars")
      continue;
    if (!saved)
      findings.push_back({checkpoint.path() + ": has no \"" + tensor.name + "\", which the plan keeps" + optimizers,
                          "compile with the optimizer and the frozen parameters of the run that saved it"});
    else if (saved->dims != tensor.dims)
      findings.push_back({checkpoint.path() + ": \"" + tensor.name + "\" is " + dimsText(saved->dims) +
                              ", in the plan it is " + dimsText(tensor.dims),
                          "resume with a plan of the model that was saved"});
  }
  for (const CheckpointTensor &saved : index.tensors) {
    if (isInference(plan)) // has no use for states
      break;
    auto at = std::lower_bound(wanted.begin(), wanted.end(), saved.name,
                               [](const LogicalTensor &tensor, const std::string &key) { return tensor.name < key; });
    if (at == wanted.end() || at->name != saved.name)
      findings.push_back({checkpoint.path() + ": holds \"" + saved.name + "\", which the plan does not keep" +
                              optimizers,
                          "compile with the optimizer and the frozen parameters of the run that saved it"});
  }
  if (findings.size() > kMostFindings) {
    const size_t all = findings.size();
    findings.resize(kMostFindings);
    findings.push_back({"and " + std::to_string(all - kMostFindings) + " more", ""});
  }
  return findings.empty() ? success() : Status(Error(std::move(findings)));
}

Status loadCheckpoint(const plan::Plan &plan, Executor &executor, const Checkpoint &checkpoint) {
  Checkpoint::Cursor cursor;
  for (const RankPiece &piece : piecesToLoad(plan, executor.shardIndex())) {
    const CheckpointTensor *tensor = checkpoint.index().find(piece.tensor);
    if (!tensor)
      return Error(checkpoint.path() + ": has no \"" + piece.tensor + "\"");
    ZEROCC_TRY(checkpoint.read(cursor, *tensor, piece.begin, piece.end, piece.dtype,
                               executor.address(piece.region, piece.offset)));
  }
  return success();
}

Status loadScalars(const plan::Plan &plan, const Checkpoint &checkpoint, double *scalars) {
  const CheckpointIndex &index = checkpoint.index();
  std::vector<double> saved(index.scalars.size());
  Checkpoint::Cursor cursor;
  ZEROCC_TRY(checkpoint.read(cursor, *index.find("scalars"), 0, static_cast<int64_t>(saved.size()), DType::f64,
                             saved.data()));
  const std::vector<std::string> names = scalarNames(plan);
  for (int i = 0; i < kScalars; ++i) {
    auto at = std::find(index.scalars.begin(), index.scalars.end(), names[i]);
    if (i != kScalarStaticCount && at != index.scalars.end())
      scalars[i] = saved[at - index.scalars.begin()];
  }
  return success();
}

} // namespace zerocc
