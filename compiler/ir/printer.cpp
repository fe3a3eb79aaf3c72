#include "compiler/ir/module.h"
#include "compiler/ir/text.h"

#include "llvm/ADT/STLExtras.h"

namespace zerocc {

std::string print(const TensorType &type) {
  std::string out(dtypeName(type.dtype));
  out += "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    out += (i ? "," : "") + std::to_string(type.dims[i]);
  return out + "]";
}

namespace {

/// Words that are not names: bare when they have name characters only, otherwise quoted.
std::string word(llvm::StringRef text) { return printName(' ', text).substr(1); }

std::string attributeList(const Attributes &attributes) {
  std::string out;
  for (const auto &[name, value] : attributes.entries())
    out += (out.empty() ? "" : ", ") + word(name) + "=" + printAttribute(value);
  return out;
}

class Printer {
public:
  explicit Printer(const Module &module) : module_(module) {}

  std::string run() {
    out_ = "module " + printName('@', module_.name) + " {\n";
    printHead();
    for (const Input &input : module_.inputs)
      printInput(input);
    for (const Constant &constant : module_.constants) {
      line("constant " + typed(*constant.value) +
           sourceSuffix(constant.source, constant.value->type, " = init") + placeSuffix(*constant.value));
    }
    for (const Parameter &parameter : module_.parameters)
      printParameter(parameter);
    for (const Bucket &bucket : module_.buckets)
      printBucket(bucket);
    for (const Storage &storage : module_.storages)
      line("storage " + typed(*storage.value) + sourceSuffix(storage.source, storage.value->type, "") + " region=" + regionName(storage.region) +
           placeSuffix(*storage.value));
    for (const std::unique_ptr<Graph> &graph : module_.graphs)
      printSegment(*graph);
    return out_ + "}\n";
  }

private:
  void line(const std::string &text) { out_ += "  " + text + "\n"; }

  void printHead() {
    const Mesh &mesh = module_.mesh;
    if (mesh.shard != 1 || mesh.replicate != 1 || module_.microSteps != 1)
      line("mesh shard=" + std::to_string(mesh.shard) + " replicate=" + std::to_string(mesh.replicate) +
           " micro_steps=" + std::to_string(module_.microSteps));
    for (const auto &[name, value] : module_.facts.entries())
      line("fact " + word(name) + "=" + printAttribute(value));
    for (int i = 0; i < kRegions; ++i)
      if (module_.regionBytes[i])
        line("region " + std::string(regionName(static_cast<Region>(i))) + " " +
             std::to_string(module_.regionBytes[i]));
  }

  void printInput(const Input &input) {
    std::string text = "input " + typed(*input.value) + " role=" + word(input.role);
    if (!input.of.empty())
      text += " of=" + word(input.of);
    if (input.shift)
      text += " shift=" + std::to_string(input.shift);
    if (input.hasRange)
      text += " range=[" + std::to_string(input.low) + "," + std::to_string(input.high) + ")";
    if (input.hasIgnore)
      text += " ignore=" + std::to_string(input.ignoreIndex);
    line(text + placeSuffix(*input.value));
  }

  void printParameter(const Parameter &parameter) {
    std::string text =
        "param " + typed(*parameter.value) + sourceSuffix(parameter.source, parameter.value->type, "");
    text += " group=" + word(parameter.group);
    text += parameter.trainable ? "" : " frozen";
    text += parameter.tiedNote ? " tied" : "";
    if (parameter.bucket >= 0)
      text += " bucket=" + bucketName(parameter.bucket) + "+" + std::to_string(parameter.bucketOffset);
    line(text + placeSuffix(*parameter.value));
  }

  void printBucket(const Bucket &bucket) {
    std::string text =
        "bucket " + printName('#', bucket.name) + " : " + std::string(dtypeName(bucket.fetchDtype)) +
        " grad=" + std::string(dtypeName(bucket.gradientDtype)) +
        " parameters=" + fieldName(bucket.parameters) + " gradients=" + fieldName(bucket.gradients) +
        " states=" + fieldName(bucket.states) + (bucket.trainable ? "" : " frozen") +
        " padded=" + std::to_string(bucket.paddedElements) + " {";
    for (const BucketRange &range : bucket.ranges) {
      bool known = range.parameter >= 0 && range.parameter < static_cast<int>(module_.parameters.size());
      text += known ? " " + printName('@', module_.parameters[range.parameter].value->name) : " @?";
      text += "+" + std::to_string(range.begin);
    }
    line(text + " }");
  }

  void printSegment(const Graph &graph) {
    ValueNames names(graph);
    line("segment " + printName('@', graph.name) + " {");
    for (const Node *node : graph.nodes)
      printNode(*node, names);
    std::string yields;
    for (const auto &[name, value] : graph.results)
      yields += (yields.empty() ? "yield " : ", ") + word(name) + "=" + names(value);
    if (!yields.empty())
      line("  " + yields);
    line("}");
  }

  void printNode(const Node &node, const ValueNames &names) {
    out_ += "    ";
    for (const Value *result : node.results)
      out_ += (result->resultIndex ? ", " : "") + names(result) + " : " + print(result->type);
    out_ += node.results.empty() ? "" : " = ";
    out_ += opText(node.op);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      out_ += (i ? ", " : " ") + names(node.inputs[i]);
    if (!node.attributes.empty())
      out_ += " {" + attributeList(node.attributes) + "}";
    if (node.bucket >= 0)
      out_ += " bucket=" + bucketName(node.bucket);
    if (llvm::any_of(node.results, [](const Value *v) { return v->place.kind != Place::Kind::none; })) {
      out_ += " place=";
      for (const Value *result : node.results)
        out_ += (result->resultIndex ? "," : "") + place(result->place, &names);
    }
    if (node.stream != Stream::compute)
      out_ += std::string(" stream=") + streamName(node.stream);
    for (size_t i = 0; i < node.after.size(); ++i)
      out_ +=
          (i ? "," : " after=") + names(node.after[i]->results.empty() ? nullptr : node.after[i]->result());
    if (!node.location.empty())
      out_ += " loc(" + quote(node.location) + ")";
    out_ += "\n";
  }

  static std::string typed(const Value &value) {
    return printName('@', value.name) + " : " + print(value.type);
  }

  static std::string sourceSuffix(const DataSource &source, const TensorType &type, const std::string &none) {
    if (source.kind == DataSource::Kind::none)
      return none;
    if (source.kind == DataSource::Kind::initializer)
      return " = initializer(" + quote(source.initializer) + ")";
    std::string out = " = [";
    const size_t step = byteSize(type.dtype);
    for (size_t at = 0; at + step <= source.bytes.size(); at += step)
      out += (at ? ", " : "") + decodeElement(type.dtype, llvm::StringRef(source.bytes).substr(at, step));
    return out + "]";
  }

  static std::string place(const Place &place, const ValueNames *names) {
    if (place.kind == Place::Kind::none)
      return "_";
    const std::string offset = "+" + std::to_string(place.offset);
    if (place.kind == Place::Kind::region)
      return regionName(place.region) + offset;
    if (place.base && place.base->isGlobal())
      return printName('@', place.base->name) + offset;
    return (names ? (*names)(place.base) : "%?") + offset;
  }

  static std::string placeSuffix(const Value &value) {
    return value.place.kind == Place::Kind::none ? "" : " place=" + place(value.place, nullptr);
  }

  std::string bucketName(int bucket) const {
    bool known = bucket < static_cast<int>(module_.buckets.size());
    return known ? printName('#', module_.buckets[bucket].name) : "#?";
  }

  const Module &module_;
  std::string out_;
};

} // namespace

std::string print(const Module &module) { return Printer(module).run(); }

} // namespace zerocc
