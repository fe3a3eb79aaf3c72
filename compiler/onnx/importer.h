#pragma once

#include "compiler/ir/module.h"

#include "llvm/ADT/StringRef.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zerocc {

/// What the user says about a model; names are those of the command line.
struct ImportOptions {
  std::map<std::string, int64_t> dims;           // --dim NAME=VALUE; an unnamed dim is INPUT.AXIS
  int64_t microBatch = 1;                        // binds the leading symbolic dim of every input that --dim does not
  std::map<std::string, std::string> inputRoles; // --input NAME=ROLE (tokens|labels|iota|ones|zeros|data)
  std::vector<std::string> freeze, trainable;    // glob patterns over parameter names; trainable wins
  std::vector<std::string> tie, untie;           // glob patterns over initializer or parameter names
  bool inference = false;                        // no parameter is trainable, Dropout and BatchNormalization infer
  bool followLinks = false;                      // --follow-symlinks: on the way to external data
  bool syncBatchNorm = false;                    // --sync-batchnorm: statistics of all ranks' micro-batches together
  bool trainBatchNorm = false;                   // --train-batchnorm: inference nodes train as well
  bool computeF32 = false;                       // --precision f32: floats of other sizes are computed in f32
  std::string dropout = "file";                  // --dropout: file (as the nodes say), off
};

/// One input of the model, as the user sees it.
struct ImportedInput {
  std::string name;
  std::string dims; // as written in the file: "[batch, sequence]"
  TensorType type;  // after binding
  std::string role; // empty: not read by anything, so not part of the module
};

/// One parameter and where its values come from and go home to.
struct ImportedParameter {
  std::string name;
  std::string initializer;         // of the file
  TensorType type;
  bool trainable = true;
  std::string reason;              // why it counts as a parameter
  std::vector<std::string> slots;  // readers, as NODE:INPUT; all of them, or those of this one of a split initializer
  bool split = false;              // shares its initializer with other parameters: export gives each its own
  std::vector<std::string> copies; // other initializers with the same values, made by the exporter
  std::vector<std::string> transposedCopies; // the same, transposed
};

/// What a model's own training form (ModelProto.training_info) asks for. Names of fields are those of compile's flags.
struct TrainingForm {
  std::string loss;                    // an output of the imported module
  std::vector<std::string> parameters; // the initializers that are updated
  std::string optimizer;               // Adam | Momentum | Adagrad, as ONNX defines them
  std::optional<double> lr;            // nullopt: an input of the algorithm
  std::optional<double> decay, vectorDecay; // norm_coefficient of matrices and of vectors; nullopt: there are none
  double beta1 = 0, beta2 = 0, eps = 0, momentum = 0, dampening = 0, postDecay = 0, rateDecay = 0;
  bool nesterov = false;
  uint64_t firstCount = 0; // T of the first update
};

/// What importing found, decided and changed. Filled as far as the import got, also when it fails.
struct ImportReport {
  std::string fingerprint;          // of the model without weights (model_fingerprint.h)
  std::vector<std::string> repairs; // what the exporter broke and the import mended: untied, tied, renamed
  std::vector<std::string> notes;
  std::vector<std::string> advice;  // damage that cannot be told from intent, or not be mended here: for `check`
  int64_t nodes = 0;             // ONNX nodes after inlining, those of subgraphs included
  int64_t nodesAfterFolding = 0; // core nodes
  int64_t inlinedCalls = 0;
  std::map<std::string, std::vector<std::string>> dims; // symbolic name or expression -> where it stands
  std::map<std::string, int64_t> boundDims;
  std::vector<ImportedInput> inputs;
  std::vector<ImportedParameter> parameters;
  std::map<std::string, int64_t> ops; // ONNX op -> how often
  std::optional<TrainingForm> training;
};

/// Reads an ONNX file (*.onnxtxt: the textual syntax) into a module with one graph, "forward", of core ops with static
/// shapes. Its results are the model's outputs, by name. Refusals list everything found, with remedies.
Expected<std::unique_ptr<Module>> importOnnx(const std::string &path, const ImportOptions &options,
                                             ImportReport *report = nullptr);
/// The same from ONNX's textual syntax.
Expected<std::unique_ptr<Module>> importOnnxText(llvm::StringRef text, const ImportOptions &options,
                                                 ImportReport *report = nullptr);

/// One row of the table of lowerings.
struct ImportOp {
  std::string domain; // "" is ai.onnx
  std::string name;
  int since = 1, until = 0; // opset versions
  std::string limits;       // what is refused, or empty
};
std::vector<ImportOp> importedOps();
/// What to do about an operator, "domain.name" as in ImportReport::ops, that does not import.
std::string importRemedy(const std::string &op);

/// A stored tensor of a model: little-endian, row-major.
struct StoredTensor {
  TensorType type;
  std::string bytes;
};
/// The weights of a model file, read on demand (also from its external data files).
class StoredWeights {
public:
  static Expected<std::unique_ptr<StoredWeights>> open(const std::string &path, bool followLinks = false);
  ~StoredWeights();
  Expected<StoredTensor> read(const std::string &initializer) const;

private:
  struct Implementation;
  explicit StoredWeights(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

} // namespace zerocc
