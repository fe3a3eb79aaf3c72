#pragma once

#include "compiler/onnx/loader.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace zerocc {

struct FlatGraph;

/// An ONNX node after inlining: the names it reads and writes are unique in the whole model.
struct FlatNode {
  std::string name;   // of the node, behind the names of the calls around it; may be empty
  std::string scope;  // path of the module it comes from, as far as the exporter tells: "transformer.h.0.ln_1"
  std::string domain; // "" is ai.onnx
  std::string op;
  int64_t version = 0; // opset version of its domain where the node stands
  std::vector<std::string> inputs, outputs;
  std::map<std::string, const onnx::AttributeProto *> attributes; // references resolved; subgraphs are below
  std::vector<std::pair<std::string, std::unique_ptr<FlatGraph>>> subgraphs;
};

struct FlatGraph {
  std::vector<std::string> inputs, outputs;
  std::vector<FlatNode> nodes; // in execution order
};

/// The model without functions, Constant nodes and name clashes.
struct FlatModel {
  FlatGraph graph;
  std::vector<std::pair<std::string, const onnx::TensorProto *>> initializers; // of the file, then Constant nodes
  std::map<std::string, const onnx::TensorProto *> initializerOf;
  int64_t inlinedCalls = 0;
  int64_t nodes = 0;

  std::deque<onnx::TensorProto> ownTensors;       // values of Constant nodes that are no tensors
  std::deque<onnx::AttributeProto> ownAttributes; // defaults of functions
};

/// Inlines the local functions and hoists Constant nodes into initializers. The model's structure has been checked.
///
/// Names defined inside a call or a subgraph get a prefix: the name of the call's (or node's) first output. Functions
/// bring their own opset imports, which is why every node carries its version.
Expected<std::unique_ptr<FlatModel>> inlineFunctions(const LoadedModel &model);

} // namespace zerocc
