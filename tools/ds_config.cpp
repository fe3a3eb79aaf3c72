#include "tools/ds_config.h"

#include "tools/ds_json.h"
#include "tools/table.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

// How a file becomes flags: each member finds its row in ds_config_keys.def, which checks its type. Rows that stand for
// themselves (Note, Only, Off) say what became of the key at once; the others are read by section, because they depend on
// each other (the batch triple, an optimizer's type and its params, bf16 and fp16). At the end every member has either a
// line in the report or a finding.

namespace zerocc {
namespace {

using llvm::StringRef;
using llvm::json::Value;

enum class Handling : uint8_t { Note, Only, Off, Group, Part };

struct Row {
  const char *path, *type, *otherwise;
  Handling handling;
  const char *text;
};

constexpr Row kRows[] = {
#define DS_KEY(path, type, otherwise, handling, text) {path, type, otherwise, Handling::handling, text},
#include "tools/ds_config_keys.def"
#undef DS_KEY
};

const Row *findRow(StringRef path) {
  for (const Row &row : kRows)
    if (path == row.path)
      return &row;
  return nullptr;
}

bool hasRowsBelow(StringRef path) {
  const std::string prefix = path.str() + ".";
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const Row &row) { return StringRef(row.path).startswith(prefix); });
}

/// The shortest text that reads back as the same number.
std::string number(double value) {
  char buffer[32];
  if (value == std::floor(value) && std::fabs(value) < 1e15)
    return std::to_string(static_cast<int64_t>(value));
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

/// LLVM's getAsInteger converts 2^63, which is undefined; it is taken for the largest number.
llvm::Optional<int64_t> wholeNumber(const Value &value) {
  const llvm::Optional<double> number = value.getAsNumber();
  if (!number || *number >= 0x1p63)
    return number && *number == 0x1p63 ? llvm::Optional<int64_t>(INT64_MAX) : llvm::None;
  return value.getAsInteger();
}

bool hasType(const Value &value, StringRef type) {
  if (type == "bool")
    return value.kind() == Value::Boolean;
  if (type == "int")
    return wholeNumber(value).hasValue();
  if (type == "number")
    return value.kind() == Value::Number;
  if (type == "string")
    return value.kind() == Value::String;
  return type == "list" ? value.kind() == Value::Array : value.kind() == Value::Object;
}

const char *typeInWords(StringRef type) {
  return type == "bool"     ? "true or false"
         : type == "int"    ? "a whole number"
         : type == "number" ? "a number"
         : type == "string" ? "a text"
         : type == "list"   ? "a list"
                            : "an object";
}

struct Setting {
  std::string path, where; // where: file:line:column
  const Value *value;
  const Row *row;
  std::string text; // of the value, as written; sections: {...}
};

struct OptimizerType {
  const char *name, *flag;
  std::vector<StringRef> keys; // of params, besides lr and weight_decay
  double lr, beta1, beta2, eps; // beta2 is RMSprop's alpha
};

// Defaults: deepspeed/ops/{adam,lion,adagrad}, torch.optim. Weight decay is 0 in all.
const OptimizerType kOptimizerTypes[] = {
    {"Adam", "adamw", {"betas", "eps", "adam_w_mode", "torch_adam", "bias_correction", "amsgrad"}, 1e-3, 0.9, 0.999, 1e-8},
    {"AdamW", "adamw", {"betas", "eps", "adam_w_mode", "torch_adam", "bias_correction", "amsgrad"}, 1e-3, 0.9, 0.999, 1e-8},
    {"SGD", "sgd", {"momentum", "nesterov", "dampening"}, 1e-3, -1, -1, -1},
    {"Lion", "lion", {"betas"}, 1e-3, 0.9, 0.99, -1},
    {"Adagrad", "adagrad", {"eps", "lr_decay", "initial_accumulator_value"}, 1e-2, -1, -1, 1e-10},
    {"RMSprop", "rmsprop", {"alpha", "eps", "momentum", "centered"}, 1e-2, -1, 0.99, 1e-8},
};
const StringRef kEveryOptimizer[] = {"lr", "weight_decay", "foreach", "fused", "capturable", "differentiable", "maximize",
                                     "set_grad_none"};

struct ScheduleType {
  const char *name;
  std::vector<StringRef> keys, required;
};
const ScheduleType kScheduleTypes[] = {
    {"WarmupLR", {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}, {}},
    {"WarmupDecayLR",
     {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"},
     {"total_num_steps"}},
    {"WarmupCosineLR",
     {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"},
     {"total_num_steps"}},
    {"OneCycle",
     {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
      "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom",
      "cycle_max_mom", "decay_mom_rate"},
     {"cycle_min_lr", "cycle_max_lr"}},
    {"LRRangeTest",
     {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"},
     {}},
};

class Reader {
public:
  Reader(const JsonText &json, const std::string &file, const DsContext &context)
      : json_(json), file_(file), context_(context) {}

  Expected<DsConfig> read() {
    for (const JsonMember &member : json_.members)
      readMember(member);
    readBatch();
    readZero();
    readOptimizer();
    readSchedule();
    readPrecision();
    readClipping();
    for (Setting &setting : settings_)
      if (!became_.count(setting.path) && !refused_.count(setting.path) && setting.row->type != StringRef("object"))
        refuse(setting, "is known, but not read"); // a row of the table without its code
    if (!findings_.empty())
      return Error(std::move(findings_));
    for (const Setting &setting : settings_)
      if (auto found = became_.find(setting.path); found != became_.end())
        config_.rows.push_back({setting.path, setting.text, found->second});
    config_.rows.insert(config_.rows.end(), implied_.begin(), implied_.end());
    return std::move(config_);
  }

private:
  // --- reports

  void became(const std::string &path, const std::string &text) { became_[path] = text; }

  void refuse(const Setting &setting, const std::string &message, const std::string &hint = "") {
    refused_.insert(setting.path);
    findings_.push_back({setting.where + ": " + setting.path + " " + message, hint});
  }

  const std::string *given(const std::string &flag) const {
    auto found = context_.given.find(flag);
    return found == context_.given.end() ? nullptr : &found->second;
  }

  /// The key at `path` becomes a flag. Where the file leaves the key out, `value` is DeepSpeed's default, and said so.
  void flag(const std::string &path, const std::string &name, const std::string &value, const std::string &why = "") {
    std::string text = name + (value.empty() ? "" : " " + value) + why;
    if (const std::string *own = given(name)) {
      text = name + (own->empty() ? "" : " " + *own) + " of the command line wins";
    } else if (auto [at, isNew] = flagOf_.insert({name, path}); !isNew) {
      if (const Setting *setting = find(path))
        refuse(*setting, "and " + at->second + " both become " + name, "keep one of the two");
      return;
    } else {
      config_.flags.push_back({name, value});
    }
    if (const Setting *setting = find(path)) {
      std::string &row = became_[setting->path];
      row += (row.empty() ? "" : ", ") + text;
    } else if (!implied_.empty() && implied_.back().key == path) {
      implied_.back().became += ", " + text;
    } else {
      implied_.push_back({path, "(left out)", text});
    }
  }

  const Setting *find(StringRef path) const {
    for (const Setting &setting : settings_)
      if (path == setting.path)
        return &setting;
    return nullptr;
  }

  /// Null when left out, null, or of the wrong type (which has been found).
  const Value *valueAt(StringRef path) const {
    const Setting *setting = find(path);
    return setting && setting->value->kind() != Value::Null ? setting->value : nullptr;
  }
  bool isAuto(StringRef path) const {
    const Value *value = valueAt(path);
    return value && value->getAsString() == llvm::Optional<StringRef>("auto");
  }
  std::optional<double> numberAt(StringRef path) const {
    const Value *value = valueAt(path);
    auto held = value ? value->getAsNumber() : llvm::None;
    return held ? std::optional<double>(*held) : std::nullopt;
  }
  std::optional<int64_t> intAt(StringRef path) const {
    const Value *value = valueAt(path);
    auto held = value ? wholeNumber(*value) : llvm::None;
    return held ? std::optional<int64_t>(*held) : std::nullopt;
  }
  bool boolAt(StringRef path, bool otherwise) const {
    const Value *value = valueAt(path);
    return value ? value->getAsBoolean().getValueOr(otherwise) : otherwise;
  }
  std::string textAt(StringRef path) const {
    const Value *value = valueAt(path);
    return value ? value->getAsString().getValueOr("").str() : "";
  }

  // --- members one by one

  const Value *valueOf(const JsonMember &member) const {
    const llvm::json::Object *object = &json_.root;
    const Value *value = nullptr;
    for (const std::string &key : member.path) {
      value = object ? object->get(key) : nullptr;
      object = value ? value->getAsObject() : nullptr;
    }
    return value;
  }

  bool isBelowClosed(const std::vector<std::string> &path) const {
    std::vector<std::string> part;
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      part.push_back(path[i]);
      if (closed_.count(jsonPath(part)))
        return true;
    }
    return false;
  }

  void readMember(const JsonMember &member) {
    if (isBelowClosed(member.path))
      return;
    const Value *value = valueOf(member);
    if (!value)
      return;
    Setting setting{jsonPath(member.path),
                    file_ + ":" + std::to_string(member.line) + ":" + std::to_string(member.column), value, nullptr,
                    value->getAsObject() && !value->getAsObject()->empty() ? "{...}" : member.text};
    setting.row = findRow(setting.path);
    if (!setting.row) {
      const std::string nearest = nearestDsKey(setting.path);
      refuse(setting, "is no key of a DeepSpeed configuration",
             nearest.empty() ? "remove it, or see zerocc compile --help" : "did you mean \"" + nearest + "\"?");
      closed_.insert(setting.path);
      return;
    }
    settings_.push_back(setting);
    auto [type, more] = StringRef(setting.row->type).split('|');
    if (value->kind() == Value::Null) {
      became(setting.path, "as if left out");
      return;
    }
    if (value->getAsString() == llvm::Optional<StringRef>("auto") && type != "string") {
      if (more == "auto" && setting.row->handling == Handling::Note)
        return became(setting.path, std::string("no effect: ") + setting.row->text);
      if (more != "auto") {
        refuse(setting, "is \"auto\", which the Hugging Face trainer does not fill in for this key",
               std::string("give ") + typeInWords(type) + ", or remove the key");
        settings_.pop_back();
        return;
      }
    } else if (!hasType(*value, type)) {
      refuse(setting, "is " + setting.text + ", it must be " + typeInWords(type),
             setting.path == "zero_optimization" ? "write {\"stage\": 1}" : "");
      closed_.insert(setting.path);
      settings_.pop_back(); // as if left out, so that nothing else is said of it
      return;
    }
    readRow(setting, type);
  }

  void readRow(const Setting &setting, StringRef type) {
    const bool isOpaque = type == "object" && !hasRowsBelow(setting.path);
    if (isOpaque)
      closed_.insert(setting.path);
    switch (setting.row->handling) {
    case Handling::Note:
      return became(setting.path, std::string("no effect: ") + setting.row->text);
    case Handling::Only:
      if (!equalsDefault(setting))
        return refuse(setting, "is " + setting.text + ": " + setting.row->text,
                      *setting.row->otherwise ? std::string("DeepSpeed's default, ") + setting.row->otherwise + ", is what is done here"
                                              : "remove it");
      return became(setting.path, "what is done here");
    case Handling::Off:
      if (isOn(*setting.value)) {
        refuse(setting, std::string("is on: ") + setting.row->text, "remove the section, or turn it off");
        closed_.insert(setting.path);
        return;
      }
      if (isOpaque)
        became(setting.path, "off");
      return;
    case Handling::Part:
      return became(setting.path, "no effect: the section is off");
    case Handling::Group:
      if (type == "object" && isOpaque)
        became(setting.path, "empty");
    }
  }

  static bool equalsDefault(const Setting &setting) {
    auto otherwise = llvm::json::parse(setting.row->otherwise);
    if (!otherwise) {
      llvm::consumeError(otherwise.takeError());
      return false;
    }
    return *otherwise == *setting.value ||
           (otherwise->getAsNumber() && otherwise->getAsNumber() == setting.value->getAsNumber()) ||
           (setting.path == "tensor_parallel.autotp_size" && wholeNumber(*setting.value) == llvm::Optional<int64_t>(1));
  }

  /// A section with "enabled" is on when that says so; one without is, unless it is empty or all within it is off.
  static bool isOn(const Value &value) {
    const llvm::json::Object *object = value.getAsObject();
    if (!object)
      return value.getAsBoolean().getValueOr(true);
    if (const Value *enabled = object->get("enabled"))
      return enabled->getAsBoolean().getValueOr(false);
    return std::any_of(object->begin(), object->end(), [](const auto &member) {
      const llvm::json::Object *inner = member.second.getAsObject();
      if (inner && inner->get("shared_parameters")) // compression_training
        return isOn(*inner->get("shared_parameters"));
      return isOn(member.second);
    });
  }

  // --- batch

  void readBatch() {
    const std::string train = "train_batch_size", micro = "train_micro_batch_size_per_gpu",
                      steps = "gradient_accumulation_steps";
    if (!find(train) && !find(micro) && !find(steps))
      return batchDefaults();
    std::optional<int64_t> all = intAt(train), one = intAt(micro), count = intAt(steps);
    auto fromFlag = [&](const char *name) -> std::optional<int64_t> {
      int64_t value = 0;
      const std::string *own = given(name);
      return own && !StringRef(*own).getAsInteger(10, value) ? std::optional<int64_t>(value) : std::nullopt;
    };
    const auto flagMicro = fromFlag("--micro-batch"), flagSteps = fromFlag("--grad-accumulation");
    std::string why;
    // What the trainer fills in; its defaults are 8 samples and 1 micro-step.
    if (isAuto(micro))
      one = flagMicro.value_or(8);
    if (isAuto(steps))
      count = flagSteps.value_or(1);
    if (isAuto(train) && !one)
      one = flagMicro.value_or(8);
    // A flag replaces its key; of three, what neither flag nor total fixes follows.
    bool isTotalKept = true;
    if (flagMicro || flagSteps) {
      if (all && one && count && !(flagMicro && flagSteps) && find(train))
        (flagMicro ? count : one).reset();
      if (flagMicro)
        one = flagMicro;
      if (flagSteps)
        count = flagSteps;
      if (flagMicro && flagSteps && all && static_cast<double>(*all) != 1.0 * *one * *count * context_.ranks) {
        all.reset();
        isTotalKept = false;
      }
    }
    auto batch = completeBatch(all, one, count, context_.ranks);
    if (!batch) {
      const Setting *at = find(train) ? find(train) : find(micro) ? find(micro) : find(steps);
      for (const Diagnostic &finding : batch.error().findings())
        refuse(*at, "does not fit: " + finding.message, finding.hint);
      refused_.insert({train, micro, steps});
      return;
    }
    const bool isMicroAuto = isAuto(micro), isStepsAuto = isAuto(steps);
    flag(micro, "--micro-batch", std::to_string(batch->micro),
         isMicroAuto ? " (the trainer's default)" : find(micro) ? "" : " (follows)");
    flag(steps, "--grad-accumulation", std::to_string(batch->steps),
         isStepsAuto ? " (the trainer's default)" : find(steps) ? "" : " (follows)");
    if (find(train) && !became_.count(train))
      became(train, (isTotalKept ? "" : "flags of the command line win: ") + std::to_string(batch->train) + " = " +
                        std::to_string(batch->micro) + " samples x " + std::to_string(batch->steps) +
                        " micro-steps x " + std::to_string(context_.ranks) + " ranks");
  }

  void batchDefaults() {
    implied_.push_back({"train_batch_size", "(left out)", "--micro-batch, --grad-accumulation and the ranks decide"});
  }

  // --- ZeRO

  void readZero() {
    const std::string zero = "zero_optimization.";
    const int64_t stage = intAt(zero + "stage").value_or(0);
    if (const Setting *at = find(zero + "stage"); at && valueAt(at->path)) {
      if (stage < 0 || stage > 3)
        refuse(*at, "is " + std::to_string(stage), "stages are 0, 1, 2 and 3");
      else
        flag(at->path, "--stage", std::to_string(stage));
    }
    // reduce_bucket_size is the most that is collected before it is reduced: a limit on buckets, in elements of f32.
    const std::string bucket = zero + "reduce_bucket_size";
    constexpr int64_t kOwnMost = 32 << 20;
    if (isAuto(bucket)) {
      became(bucket, "zerocc's own: min(32 MiB, parameters/8); --bucket-bytes sets it");
    } else if (auto elements = intAt(bucket)) {
      if (*elements < 1)
        refuse(*find(bucket), "is " + std::to_string(*elements) + ", it must be positive");
      else if (*elements < kOwnMost / 4)
        flag(bucket, "--bucket-bytes", std::to_string(*elements * 4));
      else
        became(bucket, "zerocc's own: min(32 MiB, parameters/8) is below it; --bucket-bytes sets it");
    }
    for (const char *name : {"stage3_prefetch_bucket_size", "prefetch_bucket_size"}) {
      const std::string path = zero + name;
      if (!valueAt(path))
        continue;
      if (intAt(path) == 0)
        flag(path, "--prefetch-distance", "0");
      else
        became(path, "one bucket is fetched ahead; --prefetch-distance sets how many");
    }
    for (const char *name : {"stage3_param_persistence_threshold", "param_persistence_threshold"}) {
      const std::string path = zero + name;
      auto elements = intAt(path);
      if (isAuto(path))
        became(path, "zerocc's own: parameters/512, at most 100 KiB; --persistence-bytes sets it");
      else if (elements && (*elements < 0 || *elements > (int64_t(1) << 60)))
        refuse(*find(path), "is " + std::to_string(*elements) + ", it must be between 0 and 2^60");
      else if (elements)
        flag(path, "--persistence-bytes", std::to_string(*elements * 4),
             stage == 3 ? "" : " (read at stage 3 only)");
    }
    readMics(zero + "mics_shard_size");
    for (const char *section : {"offload_param", "offload_optimizer"}) {
      const std::string path = zero + section + ".device";
      const std::string device = textAt(path);
      if (!valueAt(path))
        continue;
      if (device == "auto")
        became(path, "none: the target is the CPU, and everything is in its memory");
      else if (device == "none")
        became(path, "no effect: nothing is offloaded");
      else if (device == "cpu")
        became(path, "no effect: the target is the CPU, and everything is in its memory");
      else if (device == "nvme")
        refuse(*find(path), "is \"nvme\": nothing is offloaded to a disk in this version",
               "write \"cpu\"; zerocc inspect --memory tells what a rank needs, --stage 3 and more ranks lower it");
      else
        refuse(*find(path), "is " + find(path)->text, "devices are \"none\", \"cpu\" and \"nvme\"");
    }
    for (const char *old : {"cpu_offload", "cpu_offload_params"})
      if (valueAt(zero + old))
        became(zero + old, "no effect: the target is the CPU, and everything is in its memory");
  }

  void readMics(const std::string &path) {
    auto shard = intAt(path);
    if (!shard)
      return;
    const std::string *mesh = given("--mesh");
    const std::string axis = "shard=" + std::to_string(*shard);
    bool isMesh = false;
    if (mesh) {
      llvm::SmallVector<StringRef, 2> parts;
      StringRef(*mesh).split(parts, ',');
      isMesh = std::find(parts.begin(), parts.end(), axis) != parts.end();
    }
    if (*shard < 1)
      became(path, "off");
    else if (isMesh || (!mesh && *shard == context_.ranks))
      became(path, "--mesh of the command line: " + axis);
    else if (context_.ranks % *shard == 0 && !mesh)
      refuse(*find(path), "is " + std::to_string(*shard) + ": parameters are sharded by the mesh",
             "give --mesh " + axis + ",replicate=" + std::to_string(context_.ranks / *shard) + " in place of --ranks");
    else
      refuse(*find(path), "is " + std::to_string(*shard) + ": parameters are sharded by the mesh, which is of other size",
             "give --mesh " + axis + ",replicate=R");
  }

  // --- optimizer

  static std::string lowered(StringRef text) { return text.lower(); }

  void readOptimizer() {
    const std::string params = "optimizer.params.";
    const Setting *type = find("optimizer.type");
    if (!find("optimizer"))
      return;
    if (!type) {
      if (!refused_.count("optimizer.type"))
        refuse(*find("optimizer"), "has no type", "write \"type\": \"AdamW\"");
      return skip(params);
    }
    const std::string name = textAt("optimizer.type");
    const OptimizerType *known = nullptr;
    for (const OptimizerType &one : kOptimizerTypes)
      if (lowered(name) == lowered(one.name))
        known = &one;
    if (given("--optimizer") && (!known || flagName(*known) != *given("--optimizer"))) {
      const std::string wins = "--optimizer " + *given("--optimizer") + " of the command line wins";
      became(type->path, wins);
      for (const Setting &setting : settings_)
        if (StringRef(setting.path).startswith(params) && !refused_.count(setting.path))
          became(setting.path, "not read: " + wins);
      return;
    }
    if (!known) {
      refuseOptimizer(*type, name);
      return skip(params);
    }
    checkParams(*known);
    config_.decaysVectors = !given("--weight-decay");
    flag("optimizer.type", "--optimizer", flagName(*known));
    auto put = [&](const char *key, const char *flagText, std::optional<double> value, double otherwise, double trainers) {
      const std::string path = params + key;
      const char *why = isAuto(path) ? " (the trainer's default)" : value ? "" : " (DeepSpeed's default)";
      flag(path, flagText, number(isAuto(path) ? trainers : value.value_or(otherwise)), why);
    };
    put("lr", "--lr", numberAt(params + "lr"), known->lr, 5e-5);
    put("weight_decay", "--weight-decay", numberAt(params + "weight_decay"), 0, 0);
    if (const std::string path = params + "weight_decay"; config_.decaysVectors && numberAt(path).value_or(0) != 0)
      became_[path] += ", of vectors too";
    if (known->eps >= 0)
      put("eps", "--eps", numberAt(params + "eps"), known->eps, 1e-8);
    if (known->beta1 >= 0)
      putBetas(params + "betas", *known);
    else if (known->beta2 >= 0)
      put("alpha", "--beta2", numberAt(params + "alpha"), known->beta2, known->beta2);
    if (known->flag == StringRef("sgd"))
      putMomentum(params);
    for (const char *key : {"adam_w_mode", "torch_adam"})
      if (valueAt(params + key))
        became(params + key, key == StringRef("adam_w_mode") ? "--optimizer " + flagName(*known)
                                                             : "no effect: the update is the compiler's own");
    if (known->flag == StringRef("rmsprop") && find(params + "momentum") && !refused_.count(params + "momentum"))
      numberAt(params + "momentum").value_or(0) == 0
          ? became(params + "momentum", "what is done here")
          : refuse(*find(params + "momentum"), "is not 0: RMSprop with momentum is not in this version");
  }

  std::string flagName(const OptimizerType &type) const {
    const std::string params = "optimizer.params.";
    if (type.flag == StringRef("sgd"))
      return numberAt(params + "momentum").value_or(0) != 0 ? "momentum" : "sgd";
    if (type.name == StringRef("Adam") && !boolAt(params + "adam_w_mode", true))
      return "adam";
    return type.flag;
  }

  void putBetas(const std::string &path, const OptimizerType &known) {
    double betas[2] = {known.beta1, known.beta2};
    std::string why = find(path) ? "" : " (DeepSpeed's default)";
    if (isAuto(path)) {
      betas[0] = 0.9, betas[1] = 0.999;
      why = " (the trainer's default)";
    } else if (const Value *value = valueAt(path)) {
      const llvm::json::Array *list = value->getAsArray();
      if (!list || list->size() != 2 || !(*list)[0].getAsNumber() || !(*list)[1].getAsNumber())
        return refuse(*find(path), "is " + find(path)->text + ", it must be a list of two numbers", "write [0.9, 0.999]");
      betas[0] = *(*list)[0].getAsNumber(), betas[1] = *(*list)[1].getAsNumber();
    }
    flag(path, "--beta1", number(betas[0]), why);
    flag(path, "--beta2", number(betas[1]), why);
  }

  void putMomentum(const std::string &params) {
    const double momentum = numberAt(params + "momentum").value_or(0);
    if (momentum != 0)
      flag(params + "momentum", "--momentum", number(momentum));
    else if (find(params + "momentum"))
      became(params + "momentum", "--optimizer sgd");
    if (!find(params + "nesterov"))
      return;
    if (!boolAt(params + "nesterov", false))
      became(params + "nesterov", "what is done here");
    else if (momentum == 0)
      refuse(*find(params + "nesterov"), "is true without momentum", "give momentum, as torch.optim.SGD requires");
    else
      flag(params + "nesterov", "--nesterov", "true");
  }

  void refuseOptimizer(const Setting &at, const std::string &name) {
    const std::string low = lowered(name);
    const std::string message = "is " + at.text + ": ", hint = "types are Adam, AdamW, SGD, Lion, Adagrad, RMSprop";
    if (StringRef(low).startswith("onebit") || StringRef(low).startswith("zeroone"))
      return refuse(at, message + "it sends compressed gradients, which changes results, and is not in this version",
                    "write \"type\": \"" + std::string(StringRef(low).contains("lamb") ? "Lamb" : "AdamW") + "\"");
    if (low == "lamb" || low == "muon" || low == "adafactor" || low == "fusedadam" || low == "cpuadam")
      return refuse(at, message + "it is not in this version", hint);
    refuse(at, message + "there is no such optimizer here", hint);
  }

  /// A key that the type's constructor does not take.
  void checkParams(const OptimizerType &type) {
    const std::string params = "optimizer.params.";
    for (const Setting &setting : settings_) {
      StringRef key = setting.path;
      if (!key.consume_front(params) || refused_.count(setting.path))
        continue;
      const bool isRead = std::count(type.keys.begin(), type.keys.end(), key) ||
                          std::count(std::begin(kEveryOptimizer), std::end(kEveryOptimizer), key);
      if (isRead)
        continue;
      const bool isDefault = setting.row->handling == Handling::Only && became_.count(setting.path);
      if (!isDefault)
        refuse(setting, "is no parameter of " + std::string(type.name), "remove it");
    }
  }

  /// Keys whose section has been refused as a whole.
  void skip(const std::string &prefix) {
    for (const Setting &setting : settings_)
      if (StringRef(setting.path).startswith(prefix))
        refused_.insert(setting.path);
  }

  // --- schedule

  void readSchedule() {
    const std::string params = "scheduler.params.";
    if (!find("scheduler"))
      return;
    const Setting *type = find("scheduler.type");
    if (given("--lr-schedule")) {
      for (const Setting &setting : settings_)
        if (StringRef(setting.path).startswith("scheduler.") && setting.row->type != StringRef("object"))
          became(setting.path, "--lr-schedule " + *given("--lr-schedule") + " of the command line wins");
      return;
    }
    if (!type) {
      if (!refused_.count("scheduler.type"))
        refuse(*find("scheduler"), "has no type", "write \"type\": \"WarmupLR\"");
      return skip(params);
    }
    const ScheduleType *known = nullptr;
    std::string names;
    for (const ScheduleType &one : kScheduleTypes) {
      names += (names.empty() ? "" : ", ") + std::string(one.name);
      if (textAt("scheduler.type") == one.name)
        known = &one;
    }
    if (!known) {
      refuse(*type, "is " + type->text + ": there is no such schedule", "types are " + names);
      return skip(params);
    }
    std::string text = known->name, separator = ":";
    auto add = [&](StringRef key, const std::string &value) {
      text += separator + key.str() + "=" + value;
      separator = ",";
    };
    for (StringRef key : known->keys)
      readScheduleKey(key, *known, add);
    for (const Setting &setting : settings_) {
      StringRef key = setting.path;
      if (key.consume_front(params) && !refused_.count(setting.path) && !became_.count(setting.path))
        refuse(setting, "is no parameter of " + std::string(known->name), "remove it");
    }
    flag("scheduler.type", "--lr-schedule", text);
  }

  template <typename Add> void readScheduleKey(StringRef key, const ScheduleType &type, const Add &add) {
    const std::string path = "scheduler.params." + key.str();
    const Value *value = valueAt(path);
    const bool isFlagged = (key == "warmup_max_lr" && given("--lr")) || (key == "total_num_steps" && given("--total-steps")) ||
                           (key == "warmup_num_steps" && given("--warmup-steps"));
    if (isFlagged) {
      const char *name = key == "warmup_max_lr" ? "--lr" : key == "total_num_steps" ? "--total-steps" : "--warmup-steps";
      add(key, *given(name));
      if (find(path))
        became(path, std::string(name) + " " + *given(name) + " of the command line wins");
      return;
    }
    if (isAuto(path)) {
      if (key == "total_num_steps")
        return became(path, "zero-run --steps");
      const char *filled = key == "warmup_max_lr" ? "5e-05" : key == "warmup_num_steps" ? "2" : "0";
      if (key == "warmup_max_lr" && numberAt("optimizer.params.lr")) // the trainer has one rate for both
        return add(key, number(*numberAt("optimizer.params.lr"))), became(path, key.str() + "=" + number(*numberAt("optimizer.params.lr")) + " (the rate of the optimizer)");
      add(key, filled);
      return became(path, key.str() + "=" + filled +
                              (key == "warmup_num_steps" ? " (the trainer's default, 0, of which DeepSpeed makes 2)"
                                                         : " (the trainer's default)"));
    }
    if (!value) {
      if (std::count(type.required.begin(), type.required.end(), key) && !refused_.count(path))
        refuse(*find("scheduler"), "has no params." + key.str() + ", which " + type.name + " requires", "give it");
      else if (key == "warmup_max_lr")
        add(key, "0.001");
      return;
    }
    std::string text = value->getAsString() ? value->getAsString()->str()
                       : value->getAsBoolean() ? (*value->getAsBoolean() ? "true" : "false")
                                               : number(value->getAsNumber().getValueOr(0));
    std::string why;
    if (key == "warmup_num_steps" && wholeNumber(*value).getValueOr(0) < 2) {
      text = "2";
      why = " (DeepSpeed's least)";
    }
    if (text.find_first_of(",=:") != std::string::npos)
      return refuse(*find(path), "is " + find(path)->text);
    add(key, text);
    became(path, key.str() + "=" + text + why);
  }

  // --- precision

  void readPrecision() {
    const std::string *own = given("--precision");
    bool isOn[2];
    const char *sections[2] = {"fp16", "bf16"}, *names[2] = {"f16", "bf16"};
    for (int i = 0; i < 2; ++i) {
      const std::string path = std::string(sections[i]) + ".enabled";
      isOn[i] = isAuto(path) ? own && *own == names[i] : boolAt(path, false);
      if (isAuto(path))
        became(path, isOn[i] ? std::string("--precision ") + names[i] + " of the command line"
                             : std::string("off (the trainer's default)"));
      else if (find(path) && !isOn[i])
        became(path, "off");
    }
    if (isOn[0] && isOn[1]) {
      refuse(*find("fp16.enabled"), "and bf16.enabled are both on", "turn one of them off");
      return skip("fp16."), skip("bf16.");
    }
    for (int i = 0; i < 2; ++i) {
      const std::string path = std::string(sections[i]) + ".enabled";
      if (!isOn[i] || isAuto(path))
        continue;
      flag(path, "--precision", names[i]);
    }
    readScale(own ? *own == "f16" : isOn[0]);
    readDtypes(own ? *own : isOn[0] ? "f16" : isOn[1] ? "bf16" : "f32");
  }

  void readScale(bool isHalf) {
    const double fixed = numberAt("fp16.loss_scale").value_or(0);
    auto put = [&](const char *key, const char *flagText) {
      const std::string path = std::string("fp16.") + key;
      const bool isScale = key == StringRef("loss_scale");
      if (!valueAt(path) || refused_.count(path))
        return;
      if (!isHalf)
        return became(path, "no effect: fp16 is off");
      if (fixed != 0 && !isScale)
        return became(path, "no effect: the loss scale is fixed");
      flag(path, flagText, isScale && fixed == 0 ? "dynamic" : number(numberAt(path).value_or(0)));
    };
    put("loss_scale", "--loss-scale");
    put("initial_scale_power", "--loss-scale-initial-power");
    put("loss_scale_window", "--loss-scale-window");
    put("hysteresis", "--loss-scale-hysteresis");
    put("min_loss_scale", "--loss-scale-min");
  }

  void readDtypes(const std::string &precision) {
    for (const char *path : {"communication_data_type", "data_types.grad_accum_dtype"}) {
      if (!valueAt(path))
        continue;
      const std::string dtype = textAt(path);
      const std::string ours = dtype == "fp32"                       ? "f32"
                               : dtype == "fp16"                     ? "f16"
                               : dtype == "bf16" || dtype == "bfp16" ? "bf16"
                                                                     : "";
      if (ours.empty())
        refuse(*find(path), "is " + find(path)->text, "types are \"fp32\", \"fp16\" and \"bf16\"");
      else if (ours == "f32")
        became(path, "what is done here");
      else
        refuse(*find(path), "is " + find(path)->text + ": gradients are summed and travel in f32 (precision " + precision + ")",
               "write \"fp32\", or remove it");
    }
  }

  void readClipping() {
    const std::string path = "gradient_clipping";
    if (refused_.count(path))
      return;
    if (isAuto(path))
      return flag(path, "--clip-grad-norm", "1", " (the trainer's default)");
    auto value = numberAt(path);
    if (value && *value < 0)
      return refuse(*find(path), "is " + number(*value), "it is a norm; 0 turns clipping off");
    flag(path, "--clip-grad-norm", number(value.value_or(1)), value ? "" : " (DeepSpeed 0.19's default; older ones have 0)");
  }

  const JsonText &json_;
  const std::string &file_;
  const DsContext &context_;
  DsConfig config_;
  std::vector<Setting> settings_;
  std::map<std::string, std::string> became_;
  std::map<std::string, std::string> flagOf_; // flag -> path
  std::set<std::string> closed_, refused_;    // paths: not looked into; with a finding
  std::vector<DsReportRow> implied_;
  std::vector<Diagnostic> findings_;
};

} // namespace

Expected<DsConfig> readDsConfig(const std::string &text, const std::string &file, const DsContext &context) {
  ZEROCC_ASSIGN(JsonText json, parseJsonText(text, file));
  return Reader(json, file, context).read();
}

Expected<DsBatch> completeBatch(std::optional<int64_t> train, std::optional<int64_t> micro, std::optional<int64_t> steps,
                                int64_t ranks) {
  constexpr int64_t kMost = int64_t(1) << 31; // so that products of two fit
  for (auto [name, value] : {std::pair("train_batch_size", train), std::pair("train_micro_batch_size_per_gpu", micro),
                             std::pair("gradient_accumulation_steps", steps)})
    if (value && (*value < 1 || *value > kMost))
      return Error(std::string(name) + " is " + std::to_string(*value) + ", it must be positive and at most 2^31");
  if (ranks < 1 || ranks > kMost)
    return Error("there cannot be " + std::to_string(ranks) + " ranks");
  if (!train && !micro)
    return Error("neither train_batch_size nor train_micro_batch_size_per_gpu is given", "give one of them");
  DsBatch batch;
  const bool isTrainAlone = train && !micro && !steps;
  batch.steps = steps ? *steps : train && micro ? *train / (*micro * ranks) : 1;
  batch.micro = micro ? *micro : isTrainAlone ? *train / ranks : *train / (ranks * batch.steps);
  double product = static_cast<double>(batch.micro) * static_cast<double>(batch.steps) * static_cast<double>(ranks);
  if (product > 9e18)
    return Error("the batch is too large");
  batch.train = train ? *train : batch.micro * batch.steps * ranks;
  if (batch.micro < 1 || batch.steps < 1 || batch.train != batch.micro * batch.steps * ranks)
    return Error("train_batch_size " + std::to_string(batch.train) + " is not " +
                     (micro ? std::to_string(*micro) : "a number of") + " samples x " +
                     (steps ? std::to_string(*steps) : "a number of") + " micro-steps x " + std::to_string(ranks) + " ranks",
                 "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks; ranks are "
                 "given by --ranks or --mesh");
  return batch;
}

std::vector<DsKey> dsKeys() {
  std::vector<DsKey> keys;
  for (const Row &row : kRows)
    keys.push_back({row.path, row.type, row.otherwise});
  return keys;
}

std::string nearestDsKey(const std::string &path) {
  auto [parent, name] = StringRef(path).contains('.') ? StringRef(path).rsplit('.') : std::pair(StringRef(), StringRef(path));
  const std::string low = name.lower();
  const unsigned most = std::max<size_t>(name.empty() ? 0 : 1, std::min<size_t>(3, name.size() / 3)) + 1; // +1: another section
  unsigned best = most + 1;
  std::string nearest;
  for (const Row &row : kRows) {
    StringRef full = row.path;
    auto [rowParent, rowName] = full.contains('.') ? full.rsplit('.') : std::pair(StringRef(), full);
    const unsigned distance =
        StringRef(low).edit_distance(rowName, true, most) + (rowParent == parent ? 0 : 1);
    if (distance < best) {
      best = distance;
      nearest = full.str();
    }
  }
  return nearest;
}

std::string dsReport(const DsConfig &config, const std::string &file) {
  Table table({{"key", Align::left, 0}, {"value", Align::left, 28}, {"became", Align::left, 0}});
  for (const DsReportRow &row : config.rows)
    table.add({row.key, row.value, row.became});
  return "DeepSpeed configuration " + printable(file) + "\n" + table.text() + "\n";
}

} // namespace zerocc
