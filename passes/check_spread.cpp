// Spreads are inferred, not stored: one walk per segment in list order, two lattice values per root value, one for each
// mesh axis. What is known of module-level values: parameters and states are what their storage says, inputs vary,
// constants are the same everywhere. Carried gradients begin as `none` in the segment that writes them first and as
// what the previous segment left in the others.
//
//   views          what their operand is: they read nothing
//   compute        all operands replicated -> replicated; any varying -> varying; partial or sharded: an error
//   placed in a gradient buffer: what was varying is from now on one rank's summand: partial
//   reduce.start   partial -> sharded over shard (partial over replicate stays)
//   all_reduce     partial over replicate -> replicated
//   gather         sharded over shard -> replicated
//   optimizer      gradient: replicated over replicate, sharded or replicated over shard as the state is

#include "passes/facts.h"

#include "compiler/ir/views.h"

namespace zerocc {
namespace {

struct Spreads {
  Spread shard = Spread::replicated, replicate = Spread::replicated;
  bool operator==(const Spreads &) const = default;
};

const char *spreadName(Spread spread) {
  constexpr const char *names[] = {"replicated", "varying", "partial", "sharded"};
  return names[static_cast<int>(spread)];
}

std::string print(const Spreads &spreads) {
  return std::string(spreadName(spreads.shard)) + " over shard, " + spreadName(spreads.replicate) + " over replicate";
}

class SpreadCheck {
public:
  explicit SpreadCheck(const Module &module) : module_(module) {
    for (const Input &input : module.inputs)
      known_[input.value.get()] = {Spread::varying, Spread::varying};
    for (const Storage &storage : module.storages)
      known_[storage.value.get()] = ofStorage(storage);
  }

  std::vector<Diagnostic> run() {
    for (const auto &graph : module_.graphs) {
      graph_ = graph.get();
      for (const Node *node : graph->nodes)
        visit(*node);
    }
    return std::move(findings_);
  }

private:
  Spreads ofStorage(const Storage &storage) const {
    llvm::StringRef name = storage.value->name;
    if (name == "loss" || storage.isBuffer()) // each rank moves buffers by its own batches
      return {Spread::varying, Spread::varying};
    auto [owner, kind] = name.rsplit('.');
    for (const Bucket &bucket : module_.buckets)
      if (owner == bucket.name)
        return {storage.value->type.elements() < bucket.paddedElements ? Spread::sharded : Spread::replicated,
                Spread::replicated};
    return {};
  }

  // An axis of one rank: every spread is the same there.
  bool isTrivial(bool shardAxis) const { return (shardAxis ? module_.mesh.shard : module_.mesh.replicate) == 1; }

  Spreads of(const Value *value) const {
    auto found = known_.find(value);
    if (found != known_.end())
      return found->second;
    return {};
  }

  void report(const Node &node, const std::string &what) {
    findings_.push_back({graph_->name + ": " + std::string(opText(node.op)) + " \"" + node.location + "\": " + what, ""});
  }

  void require(const Node &node, bool shardAxis, Spread found, Spread wanted, const char *what) {
    if (found != wanted && !isTrivial(shardAxis))
      report(node, std::string(what) + " is " + spreadName(found) + " over " + (shardAxis ? "shard" : "replicate") +
                       ", must be " + spreadName(wanted));
  }

  // The gradient buffer a value is placed in, or null.
  bool isGradientBuffer(const Value *base) const {
    if (!base->isGlobal())
      return base->definition->op == OpKind::Buffer && base->definition->bucket >= 0;
    return llvm::StringRef(base->name).endswith(".grad");
  }

  Spreads compute(const Node &node) {
    Spreads result;
    for (const Value *input : node.inputs) {
      Spreads s = of(input);
      for (bool shardAxis : {true, false}) {
        Spread spread = shardAxis ? s.shard : s.replicate;
        if ((spread == Spread::partial || spread == Spread::sharded) && !isTrivial(shardAxis))
          report(node, std::string("reads a value that is ") + print(s));
        if (spread == Spread::varying)
          (shardAxis ? result.shard : result.replicate) = Spread::varying;
      }
    }
    return result;
  }

  void visit(const Node &node) {
    Spreads first = node.inputs.empty() ? Spreads{} : of(node.input(0));
    switch (node.op) {
    case OpKind::Buffer:
      set(node, {Spread::partial, Spread::partial});
      return;
    case OpKind::ClearPadding:
    case OpKind::FetchWait:
    case OpKind::ReduceWait:
      set(node, first);
      return;
    case OpKind::Release:
      return;
    case OpKind::Member:
      if (node.attributes.getInt("part")) {
        // The rank's own part of a whole buffer: after a reduction in place only that part is a sum.
        Spreads part = first.shard == Spread::replicated ? Spreads{Spread::sharded, first.replicate} : first;
        set(node, part);
      } else {
        set(node, first);
      }
      return;
    case OpKind::FetchStart:
      if (!node.attributes.getInt("in_place"))
        require(node, true, first.shard, Spread::sharded, "the fetched part");
      set(node, {Spread::replicated, first.replicate});
      return;
    case OpKind::ReduceStart: {
      require(node, true, first.shard, Spread::partial, "the gradient");
      Spreads reduced{Spread::sharded, first.replicate};
      set(node, reduced);
      known_[rootOf(node.result())] = reduced; // in place: the carried or the transient buffer itself
      return;
    }
    case OpKind::AllReduceStart: {
      require(node, false, first.replicate, Spread::partial, "the gradient");
      Spreads reduced{first.shard, Spread::replicated};
      set(node, reduced);
      known_[rootOf(node.result())] = reduced;
      return;
    }
    case OpKind::AllGatherStart: {
      Spreads part = of(rootOf(node.input(0)));
      require(node, true, part.shard, Spread::sharded, "the gathered gradient");
      Spreads whole{Spread::replicated, part.replicate};
      set(node, whole);
      known_[rootOf(node.result())] = whole;
      return;
    }
    case OpKind::Accumulate: {
      Spreads added = of(node.input(1)), sum = of(node.input(0));
      if (node.input(0)->isGlobal() || node.bucket >= 0)
        sum = of(rootOf(node.input(0)));
      if (!(added == sum) && node.bucket >= 0)
        for (bool shardAxis : {true, false})
          if ((shardAxis ? added.shard != sum.shard : added.replicate != sum.replicate) && !isTrivial(shardAxis)) {
            report(node, "adds a value that is " + print(added) + " to one that is " + print(sum));
            break;
          }
      set(node, added);
      return;
    }
    case OpKind::NormPartial: {
      Spreads gradient = of(rootOf(node.input(0)));
      if (gradient.shard != Spread::replicated || node.input(0)->type.elements() == bucketOf(node).paddedElements)
        checkReduced(node, gradient, false);
      set(node, {Spread::varying, Spread::varying});
      return;
    }
    case OpKind::ExchangeStart:
    case OpKind::StepScalars:
      set(node, {});
      return;
    case OpKind::AdamW:
    case OpKind::OnnxAdam:
    case OpKind::Sgd:
    case OpKind::Adagrad: {
      Spreads gradient = of(rootOf(node.input(1)));
      bool whole = node.input(0)->type.elements() == bucketOf(node).paddedElements;
      checkReduced(node, gradient, whole);
      for (size_t i = 0; i < node.results.size(); ++i)
        known_[node.result(i)] = of(node.input(inPlaceOperand(node.op, i)));
      return;
    }
    default:
      break;
    }
    Spreads result = isViewNode(node) ? first : compute(node);
    for (const Value *value : node.results) {
      known_[value] = result;
      if (value->place.kind == Place::Kind::value && isGradientBuffer(value->place.base)) {
        known_[value] = {Spread::partial, Spread::partial};
        if (value->place.base->isGlobal()) // a new sum begins in the carried buffer
          known_[value->place.base] = {Spread::partial, Spread::partial};
      }
    }
  }

  const Bucket &bucketOf(const Node &node) const { return module_.buckets[node.bucket]; }

  void checkReduced(const Node &node, const Spreads &gradient, bool whole) {
    require(node, true, gradient.shard, whole ? Spread::replicated : Spread::sharded, "the gradient");
    require(node, false, gradient.replicate, Spread::replicated, "the gradient");
  }

  void set(const Node &node, const Spreads &spreads) {
    for (const Value *result : node.results)
      known_[result] = spreads;
  }

  const Module &module_;
  const Graph *graph_ = nullptr;
  llvm::DenseMap<const Value *, Spreads> known_;
  std::vector<Diagnostic> findings_;
};

} // namespace

Status checkSpreads(const Module &module) {
  std::vector<Diagnostic> findings = SpreadCheck(module).run();
  if (findings.empty())
    return success();
  return Error(std::move(findings));
}

} // namespace zerocc
