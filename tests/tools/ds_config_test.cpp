// ds_config.json files in the style of public ones, through the command line: the report or the refusal of each is
// NAME.golden beside it. UPDATE_GOLDEN=1 rewrites them.

#include "runtime/plan/plan.h"
#include "tests/e2e/cli.h"
#include "tools/ds_config.h"
#include "tools/ds_json.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

namespace zerocc {
namespace {

using namespace e2e;
using Flags = std::vector<std::string>;

struct Case {
  const char *name;
  Flags flags = {"--ranks", "2"};
  int exitCode = 0;
};

void PrintTo(const Case &c, std::ostream *out) { *out << c.name; }

const Case kCases[] = {
    {"stage0_adam"},
    {"stage1", {}},
    {"stage2"},
    {"stage3"},
    {"hf_auto_stage2"},
    {"hf_auto_stage3_offload"},
    {"hf_auto_with_flags",
     {"--ranks", "4", "--micro-batch", "2", "--grad-accumulation", "3", "--lr", "0.01", "--stage", "2", "--total-steps",
      "40", "--warmup-steps", "7", "--precision", "f32", "--clip-grad-norm", "0.25"}},
    {"accelerate_no_optimizer", {"--ranks", "2", "--optimizer", "adam", "--lr", "2e-4"}},
    {"fp16_dynamic", {"--ranks", "2"}},
    {"fp16_static", {"--ranks", "2"}},
    {"bf16_stage3", {"--ranks", "2"}, 0},
    {"nvme_offload", {"--ranks", "2"}, 1},
    {"onebit_adam", {}, 1},
    {"lamb_bert", {}, 1},
    {"adam_l2", {}},
    {"sgd_onecycle"},
    {"lion_range_test"},
    {"zeropp", {"--ranks", "4"}, 1},
    {"mics", {"--mesh", "shard=2,replicate=2"}},
    {"batch_does_not_fit", {"--ranks", "4"}, 1},
    {"misspelled", {}, 1},
    {"wrong_types", {}, 1},
    {"twice", {}, 1},
    {"comment", {}, 1},
    {"trailing_comma", {}, 1},
};

std::string without(std::string text, const std::string &part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
  return text;
}

class DsConfigFile : public testing::TestWithParam<Case> {};

TEST_P(DsConfigFile, IsCompiledOrRefused) {
  const Case &c = GetParam();
  const std::string folder = source("tests/tools/ds_config/"), plan = scratch("ds") + "/" + c.name + ".zplan";
  Flags flags = {"compile",  modelPath("mlp"), "-o", plan, "--loss", "mse:y",
                 "--config", folder + c.name + ".json"};
  flags.insert(flags.end(), c.flags.begin(), c.flags.end());
  CliResult result = cli("zerocc", flags);
  EXPECT_EQ(result.exitCode, c.exitCode) << result.error;
  std::string told = "#";
  for (const std::string &flag : c.flags)
    told += " " + flag;
  told += "\n" + (result.exitCode == 0 ? result.out.substr(0, result.out.find("\n\n") + 1)
                                       : without(result.error, folder));
  told = without(told, folder);
  const std::string golden = folder + c.name + ".golden";
  if (std::getenv("UPDATE_GOLDEN"))
    writeFile(golden, told);
  EXPECT_EQ(told, readFile(golden));
  if (result.exitCode != 0)
    return;
  CliResult verified = cli("zerocc", {"verify", plan});
  EXPECT_EQ(verified.exitCode, 0) << verified.error;
  CliResult trained = cli("zero-run", {plan, "--model", modelPath("mlp"), "--data", source("models/mlp.data.npz"),
                                       "--steps", "1"});
  EXPECT_EQ(trained.exitCode, 0) << trained.error;
}

INSTANTIATE_TEST_SUITE_P(All, DsConfigFile, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &info) { return std::string(info.param.name); });

// The plan is the one that the flags of the report give.
TEST(DsConfig, IsTheSameAsItsFlags) {
  const std::string folder = scratch("same"), config = folder + "/ds.json";
  writeFile(config, R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
    "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}, "zero_optimization": {"stage": 2}})");
  const Flags common = {"--loss", "mse:y", "--ranks", "2"};
  auto weights = [&](const std::string &name, Flags more) {
    const std::string plan = folder + "/" + name + ".zplan", out = folder + "/" + name + ".jsonl";
    Flags flags = {"compile", modelPath("mlp"), "-o", plan};
    flags.insert(flags.end(), common.begin(), common.end());
    flags.insert(flags.end(), more.begin(), more.end());
    CliResult compiled = cli("zerocc", flags);
    EXPECT_EQ(compiled.exitCode, 0) << compiled.error;
    CliResult trained = cli("zero-run", {plan, "--model", modelPath("mlp"), "--data", source("models/mlp.data.npz"),
                                         "--steps", "3", "--metrics", out});
    EXPECT_EQ(trained.exitCode, 0) << trained.error;
    const std::string metrics = readFile(out);
    auto losses = jsonTexts(metrics, "loss"), norms = jsonTexts(metrics, "grad_norm");
    losses.insert(losses.end(), norms.begin(), norms.end());
    EXPECT_GE(losses.size(), 3u);
    return losses;
  };
  const Flags equal = {"--micro-batch", "2",   "--grad-accumulation", "2",          "--clip-grad-norm", "0.5", "--stage", "2",
                       "--optimizer",   "momentum", "--momentum",     "0.9", "--lr", "0.05", "--weight-decay", "0"};
  const auto fromConfig = weights("config", {"--config", config});
  EXPECT_EQ(fromConfig, weights("flags", equal));
  Flags slower = equal;
  *(std::find(slower.begin(), slower.end(), "0.05")) = "0.01";
  EXPECT_EQ(weights("wins", {"--config", config, "--lr", "0.01"}), weights("slower", slower));
  EXPECT_NE(fromConfig, weights("wins", {"--config", config, "--lr", "0.01"}));
}

// No flag says this: DeepSpeed decays all parameters of its one group, zerocc by default matrices only.
TEST(DsConfig, DecaysVectorsAsDeepSpeedDoes) {
  const std::string folder = scratch("decay"), config = folder + "/ds.json", path = folder + "/p.zplan";
  auto decays = [&](const std::string &optimizer, Flags more) {
    writeFile(config, R"({"train_micro_batch_size_per_gpu": 2)" + optimizer + "}");
    Flags flags = {"compile", modelPath("mlp"), "-o", path, "--loss", "mse:y", "--config", config};
    flags.insert(flags.end(), more.begin(), more.end());
    CliResult compiled = cli("zerocc", flags);
    EXPECT_EQ(compiled.exitCode, 0) << compiled.error;
    auto plan = loadPlan(path);
    EXPECT_TRUE(plan) << plan.error().text();
    const auto &groups = plan->defaults().group_weight_decay(); // of matrices, of vectors
    return std::vector<double>(groups.begin(), groups.end());
  };
  const std::string adamW = R"(, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0.3}})";
  EXPECT_EQ(decays(adamW, {}), (std::vector<double>{0.3, 0.3}));
  EXPECT_EQ(decays(adamW, {"--weight-decay", "0.2"}), (std::vector<double>{0.2, 0})) << "as the flag has it";
  EXPECT_EQ(decays("", {}), (std::vector<double>{0.01, 0}));
}

TEST(DsConfig, MissingFile) {
  CliResult result = cli("zerocc", {"compile", modelPath("mlp"), "-o", scratch("ds") + "/none.zplan", "--config", "none.json"});
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_NE(result.error.find("error: none.json: cannot read"), std::string::npos) << result.error;
}

TEST(DsBatch, TwoGiveTheThird) {
  auto check = [](std::optional<int64_t> train, std::optional<int64_t> micro, std::optional<int64_t> steps, int64_t ranks,
                  std::vector<int64_t> expected) {
    auto batch = completeBatch(train, micro, steps, ranks);
    if (expected.empty()) {
      EXPECT_FALSE(batch);
      return;
    }
    ASSERT_TRUE(batch) << batch.error().text();
    EXPECT_EQ((std::vector<int64_t>{batch->train, batch->micro, batch->steps}), expected);
  };
  const std::optional<int64_t> none;
  check(32, 4, 2, 4, {32, 4, 2});
  check(32, 4, none, 4, {32, 4, 2});
  check(32, none, 2, 4, {32, 4, 2});
  check(none, 4, 2, 4, {32, 4, 2});
  check(32, none, none, 4, {32, 8, 1});
  check(none, 4, none, 4, {16, 4, 1});
  check(none, none, 2, 4, {});
  check(none, none, none, 4, {});
  check(32, 4, 2, 3, {});
  check(33, 4, none, 4, {});
  check(3, none, none, 4, {});
  check(0, none, none, 1, {});
  check(-8, 2, none, 1, {});
  check(8, 0, none, 1, {});
  check(none, 2, 0, 1, {});
  check(none, int64_t(1) << 31, int64_t(1) << 31, 4, {});
}

TEST(DsKeys, NearestNames) {
  EXPECT_EQ(nearestDsKey("train_batchsize"), "train_batch_size");
  EXPECT_EQ(nearestDsKey("zero_optimization.stge"), "zero_optimization.stage");
  EXPECT_EQ(nearestDsKey("stage"), "zero_optimization.stage");
  EXPECT_EQ(nearestDsKey("zero_optimisation"), "zero_optimization");
  EXPECT_EQ(nearestDsKey("fp16.Enabled"), "fp16.enabled");
  EXPECT_EQ(nearestDsKey("frobnicate"), "");
  EXPECT_EQ(nearestDsKey(""), "");
}

// Each key alone, with its default and with other values of its type: an answer, and a reason where it is refused.
TEST(DsKeys, EveryRowHasAnAnswer) {
  std::set<std::string> seen;
  for (const DsKey &key : dsKeys()) {
    SCOPED_TRACE(key.path);
    EXPECT_TRUE(seen.insert(key.path).second) << "two rows";
    llvm::StringRef type = llvm::StringRef(key.type).split('|').first;
    std::vector<std::string> values = {"null"};
    if (!key.otherwise.empty())
      values.push_back(key.otherwise);
    if (type == "bool")
      values.insert(values.end(), {"true", "false"});
    else if (type == "int")
      values.insert(values.end(), {"0", "1", "2", "-1", "1e3", "9223372036854775807"});
    else if (type == "number")
      values.insert(values.end(), {"0.5", "0", "-1", "1e30"});
    else if (type == "string")
      values.insert(values.end(), {"\"\"", "\"cpu\"", "\"fp16\"", "\"AdamW\"", "\"WarmupLR\""});
    else if (type == "list")
      values.insert(values.end(), {"[]", "[0.9, 0.95]", "[\"x\"]"});
    else
      values.insert(values.end(), {"{}", "{\"enabled\": true}", "{\"enabled\": false}"});
    if (llvm::StringRef(key.type).endswith("auto"))
      values.push_back("\"auto\"");
    values.push_back(type == "string" ? "7" : "\"text\""); // not of the type
    for (const std::string &value : values) {
      llvm::SmallVector<llvm::StringRef, 4> parts;
      llvm::StringRef(key.path).split(parts, '.');
      std::string text = value;
      for (auto part = parts.rbegin(); part != parts.rend(); ++part)
        text = "{\"" + part->str() + "\": " + text + "}";
      SCOPED_TRACE(text);
      DsContext context;
      auto config = readDsConfig(text, "f", context);
      const bool isWrong = &value == &values.back();
      if (!config) {
        EXPECT_EQ(config.error().text().find("is known, but not read"), std::string::npos) << config.error().text();
        continue;
      }
      EXPECT_FALSE(isWrong) << "a wrong type is taken";
      bool isTold = type == "object" && value.front() == '{';
      for (const DsReportRow &row : config->rows) {
        isTold |= row.key == key.path;
        EXPECT_FALSE(row.became.empty());
      }
      EXPECT_TRUE(isTold) << "dropped in silence";
    }
  }
}

// The table of the reference, written out: none may be missing.
TEST(DsKeys, KnowsThoseOfTheReference) {
  std::set<std::string> known;
  for (const DsKey &key : dsKeys())
    known.insert(key.path);
  const char *zero[] = {"stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size",
                        "use_multi_rank_bucket_allreduce", "allgather_partitions", "allgather_bucket_size", "overlap_comm",
                        "load_from_fp32_weights", "elastic_checkpoint", "sub_group_size", "stage3_prefetch_bucket_size",
                        "stage3_param_persistence_threshold", "stage3_model_persistence_threshold",
                        "stage3_max_live_parameters", "stage3_max_reuse_distance",
                        "stage3_gather_16bit_weights_on_model_save", "stage3_module_granularity_threshold",
                        "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential",
                        "ignore_unused_parameters", "legacy_stage1", "round_robin_gradients", "zero_hpz_partition_size",
                        "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
                        "zeropp_loco_param", "zeropp_loco_param.err_beta", "zeropp_loco_param.reset_T", "mics_shard_size",
                        "mics_hierarchical_params_gather", "memory_efficient_linear", "pipeline_loading_checkpoint",
                        "override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks",
                        "save_muon_momentum_buffer_in_memory", "leaf_module.classes", "leaf_module.names",
                        "leaf_module.name_suffixes", "offload_param.device", "offload_param.nvme_path",
                        "offload_param.buffer_count", "offload_param.buffer_size", "offload_param.max_in_cpu",
                        "offload_param.pin_memory", "offload_optimizer.device", "offload_optimizer.buffer_count",
                        "offload_optimizer.pin_memory", "offload_optimizer.pipeline_read",
                        "offload_optimizer.pipeline_write", "offload_optimizer.fast_init", "offload_optimizer.ratio",
                        "offload_optimizer.super_offload", "offload_optimizer.cpuadam_cores_perc", "zenflow.topk_ratio",
                        "zenflow.select_strategy", "zenflow.select_interval", "zenflow.update_interval",
                        "zenflow.overlap_step", "zenflow.offload", "zenflow.auto_ratio", "zenflow.full_warm_up_rounds",
                        "zenflow.pt_reserved_cores_perc"};
  for (const char *key : zero)
    EXPECT_TRUE(known.count(std::string("zero_optimization.") + key)) << key;
  for (const char *key :
       {"aio.block_size", "aio.queue_depth", "aio.intra_op_parallelism", "aio.single_submit", "aio.overlap_events",
        "aio.use_gds", "gradient_clipping", "communication_data_type", "seq_parallel_communication_data_type",
        "prescale_gradients", "gradient_predivide_factor", "gradient_allreduce_op", "data_types.grad_accum_dtype",
        "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "fp16.loss_scale", "fp16.initial_scale_power",
        "fp16.loss_scale_window", "fp16.hysteresis", "fp16.consecutive_hysteresis", "fp16.min_loss_scale",
        "bf16.check_grad_overflow", "bf16.immediate_grad_update", "bf16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states", "checkpoint.load_universal", "elasticity.max_train_batch_size",
        "elasticity.micro_batch_sizes", "elasticity.min_gpus", "elasticity.max_gpus", "elasticity.version",
        "elasticity.prefer_larger_batch", "compile.deepcompile"})
    EXPECT_TRUE(known.count(key)) << key;
}

TEST(DsKeys, PrecisionBecomesFlags) {
  EXPECT_FALSE(readDsConfig(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})", "f", {}));
  using Map = std::map<std::string, std::string>;
  auto flagsOf = [](const std::string &text, const DsContext &context) {
    auto config = readDsConfig(text, "f", context);
    EXPECT_TRUE(config) << config.error().text();
    Map flags;
    for (const DsFlag &flag : config->flags)
      flags[flag.flag] = flag.value;
    return flags;
  };
  const Map clip{{"--clip-grad-norm", "1"}};
  auto with = [&](Map more) {
    more.insert(clip.begin(), clip.end());
    return more;
  };
  EXPECT_EQ(flagsOf(R"({"bf16": {"enabled": true}})", {}), with({{"--precision", "bf16"}}));
  EXPECT_EQ(flagsOf(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500,
    "hysteresis": 3, "min_loss_scale": 0.5}})", {}),
            with({{"--precision", "f16"},
                  {"--loss-scale", "dynamic"},
                  {"--loss-scale-initial-power", "12"},
                  {"--loss-scale-window", "500"},
                  {"--loss-scale-hysteresis", "3"},
                  {"--loss-scale-min", "0.5"}}));
  EXPECT_EQ(flagsOf(R"({"fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 500}})", {}),
            with({{"--precision", "f16"}, {"--loss-scale", "128"}}));
  const DsContext beside{1, {{"--precision", "f32"}}};
  EXPECT_EQ(flagsOf(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12}})", beside), clip);
}

TEST(DsJson, PlacesAndErrors) {
  auto error = [](const std::string &text) {
    auto json = parseJsonText(text, "f");
    return json ? std::string("none") : json.error().text();
  };
  EXPECT_EQ(error("{}"), "none");
  EXPECT_NE(error("").find("f:1:"), std::string::npos) << error("");
  EXPECT_NE(error("[]").find("f:1:1: the file does not hold an object"), std::string::npos);
  EXPECT_NE(error("{\n  \"a\": 1,\n  \"\\u0061\": 2}").find("f:3:3: a is given twice"), std::string::npos);
  EXPECT_NE(error("{\"a\": [{\"b\": 1, \"b\": 2}]}").find("a.b is given twice"), std::string::npos);
  EXPECT_NE(error("{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}").find("nested deeper"), std::string::npos);
  auto json = parseJsonText("{\"a\": {\n \"b\": \"}\"}, \"c d\": 1}", "f");
  ASSERT_TRUE(json);
  ASSERT_EQ(json->members.size(), 3u);
  EXPECT_EQ(json->members[1].line, 2);
  EXPECT_EQ(json->members[1].column, 2);
  EXPECT_EQ(jsonPath(json->members[1].path), "a.b");
  EXPECT_EQ(jsonPath(json->members[2].path), "\"c d\"");
}

} // namespace
} // namespace zerocc
