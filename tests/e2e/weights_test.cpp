// --weights: tensors by the names of a state dict, in the files of a model hub, give the run that the same weights in the
// ONNX file give, bit for bit. (Beside PyTorch, by hand: tests/e2e/hub_weights.py.)

#include "runtime/weights/safetensors.h"
#include "tests/e2e/cli.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace zerocc::e2e {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;
const char *kModel = "llama_torchscript"; // its exporter has transposed every linear layer, square ones too

struct Hub {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::vector<float>> values;

  /// Tensors as zero-run exports them, named and turned as the framework has them.
  explicit Hub(const std::string &exported) {
    auto file = SafetensorsFile::open(exported);
    EXPECT_TRUE(file);
    for (const std::string &name : file->names()) {
      const ArrayView &view = *file->find(name);
      const auto *from = reinterpret_cast<const float *>(view.data);
      std::vector<float> to(from, from + view.elements);
      std::vector<int64_t> dims = view.dims;
      if (name.find("proj") != std::string::npos || name.find("lm_head") != std::string::npos) {
        for (int64_t r = 0; r < dims[0]; ++r)
          for (int64_t c = 0; c < dims[1]; ++c)
            to[c * dims[0] + r] = from[r * dims[1] + c];
        std::swap(dims[0], dims[1]);
      }
      const std::string hubName = name.substr(std::string("model.").size());
      entries[hubName] = {hubName, ElementType::f32, dims};
      values[hubName] = std::move(to);
    }
  }

  /// In `count` files with an index; one file: without.
  void write(const std::string &folder, int count) {
    fs::create_directories(folder);
    std::string map;
    for (int f = 0; f < count; ++f) {
      const std::string file = count == 1 ? "model.safetensors" : "model-" + std::to_string(f) + ".safetensors";
      std::vector<SafetensorsEntry> some;
      int i = 0;
      for (const auto &[name, entry] : entries)
        if (i++ % count == f) {
          some.push_back(entry);
          map += (map.empty() ? "" : ",") + ("\"" + name + "\":\"" + file + "\"");
        }
      Status written = writeSafetensors(folder + "/" + file, some, {{"format", "pt"}}, [&](const std::string &name) {
        const std::vector<float> &each = values.at(name);
        return Expected<Bytes>(Bytes(reinterpret_cast<const unsigned char *>(each.data()), each.size() * 4));
      });
      EXPECT_TRUE(written);
    }
    if (count > 1)
      writeFile(folder + "/model.safetensors.index.json", "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}");
  }
};

class Weights : public testing::Test {
protected:
  void SetUp() override {
    folder = scratch("weights");
    plan = folder + "/plan.zplan";
    compile(kModel, plan, {"--ranks", "3", "--stage", "3", "--micro-batch", "1", "--bucket-bytes", "4KiB"});
    // Trained a little, so that they are not those of the model.
    for (const char *name : {"/trained.onnx", "/trained.safetensors"})
      ASSERT_EQ(train(kModel, plan, {"--steps", "2", "--export", folder + name}).exitCode, 0);
  }
  CliResult run(Flags more, const std::string &model = modelPath(kModel)) {
    more.insert(more.begin(), {plan, "--model", model, "--data", source("models/" + std::string(kModel) + ".data.npz"),
                               "--steps", "2", "--export", folder + "/out.safetensors"});
    fs::remove(folder + "/out.safetensors");
    return cli("zero-run", more);
  }
  std::string folder, plan;
};

TEST_F(Weights, GiveTheSameRunAsInTheModel) {
  CliResult model = run({}, folder + "/trained.onnx");
  ASSERT_EQ(model.exitCode, 0) << model.error;
  const std::string expected = readFile(folder + "/out.safetensors");
  ASSERT_EQ(run({}).exitCode, 0);
  ASSERT_FALSE(readFile(folder + "/out.safetensors") == expected) << "the weights make no difference";
  for (int files : {1, 3}) {
    Hub(folder + "/trained.safetensors").write(folder + "/hub" + std::to_string(files), files);
    CliResult hub = run({"--weights", folder + "/hub" + std::to_string(files)});
    ASSERT_EQ(hub.exitCode, 0) << hub.error;
    EXPECT_NE(hub.error.find("note: weights are found by their names without the model's \"model.\""), std::string::npos)
        << hub.error;
    EXPECT_TRUE(readFile(folder + "/out.safetensors") == expected);
  }
  CliResult own = run({"--weights", folder + "/trained.safetensors"}); // as the model has them
  ASSERT_EQ(own.exitCode, 0) << own.error;
  EXPECT_TRUE(readFile(folder + "/out.safetensors") == expected);
}

// As models/zerocc_export.py makes of a DeepSpeed checkpoint: here from one of ours.
TEST_F(Weights, WithOptimizerStatesGoOnAsARunThatWasResumed) {
  const std::string one = folder + "/one.zplan", saves = folder + "/saves", hub = folder + "/states";
  compile(kModel, one, {"--ranks", "1", "--micro-batch", "3"});
  ASSERT_EQ(train(kModel, one, {"--steps", "2", "--save", saves}).exitCode, 0);
  auto file = SafetensorsFile::open(saves + "/000001-step-2/rank-0.safetensors");
  ASSERT_TRUE(file);
  auto only = [&](const std::string &state) { // one rank's file holds whole tensors by their names
    std::vector<SafetensorsEntry> entries;
    for (const std::string &name : file->names())
      if (name.rfind(state + "/", 0) == 0)
        entries.push_back({name.substr(state.size() + 1), ElementType::f32, file->find(name)->dims});
    const std::string path = folder + "/" + state + ".safetensors";
    EXPECT_TRUE(writeSafetensors(path, entries, {}, [&](const std::string &name) {
      const ArrayView &view = *file->find(state + "/" + name);
      return Expected<Bytes>(Bytes(view.data, static_cast<size_t>(view.bytes())));
    }));
    return Hub(path);
  };
  only("parameter").write(hub, 2);
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::vector<float>> values;
  for (const std::string state : {"moment1", "moment2"}) {
    Hub part = only(state);
    for (auto &[name, entry] : part.entries) {
      entry.name = state + "/" + name;
      entries.push_back(entry);
      values[entry.name] = part.values[name];
    }
  }
  auto writeStates = [&](const std::map<std::string, std::string> &metadata) {
    EXPECT_TRUE(writeSafetensors(hub + "/optimizer.safetensors", entries, metadata, [&](const std::string &name) {
      const std::vector<float> &each = values.at(name);
      return Expected<Bytes>(Bytes(reinterpret_cast<const unsigned char *>(each.data()), each.size() * 4));
    }));
  };
  writeStates({{"updates", "2"}});
  auto goOn = [&](Flags more) {
    fs::remove(folder + "/out.safetensors");
    more.insert(more.begin(), {plan, "--model", modelPath(kModel), "--data",
                               source("models/" + std::string(kModel) + ".data.npz"), "--steps", "5", "--export",
                               folder + "/out.safetensors"});
    CliResult result = cli("zero-run", more);
    EXPECT_EQ(result.exitCode, 0) << result.error;
    return std::pair(readFile(folder + "/out.safetensors"), result.error);
  };
  auto [resumed, said] = goOn({"--resume", saves});
  auto [converted, saidOther] = goOn({"--weights", hub});
  EXPECT_TRUE(resumed == converted) << saidOther;
  EXPECT_NE(saidOther.find("goes on with the optimizer's states after 2 steps"), std::string::npos) << saidOther;

  writeStates({});
  EXPECT_NE(run({"--weights", hub}).error.find("its metadata say no number of \"updates\""), std::string::npos);
  std::erase_if(entries, [](const SafetensorsEntry &entry) { return entry.name.find("moment2/") == 0; });
  writeStates({{"updates", "2"}});
  EXPECT_NE(run({"--weights", hub}).error.find("holds no states \"moment2\""), std::string::npos);
}

TEST_F(Weights, AreRefusedByName) {
  auto refusal = [&](Hub hub, int files, Flags more = {}) {
    fs::remove_all(folder + "/bad");
    hub.write(folder + "/bad", files);
    more.insert(more.begin(), {"--weights", folder + "/bad"});
    CliResult result = run(more);
    EXPECT_EQ(result.exitCode, 1);
    return result.error;
  };
  const Hub good(folder + "/trained.safetensors");
  Hub missing = good;
  auto moved = missing.entries.extract("model.norm.weight");
  moved.key() = moved.mapped().name = "model.last_norm.weight";
  missing.entries.insert(std::move(moved));
  missing.values["model.last_norm.weight"] = missing.values["model.norm.weight"];
  std::string error = refusal(missing, 1);
  EXPECT_NE(error.find("\"model.model.norm.weight\" [32] is in none of the files"), std::string::npos) << error;
  EXPECT_NE(error.find("perhaps it is --weight-name model.model.norm.weight=model.last_norm.weight"), std::string::npos)
      << error;
  missing.write(folder + "/named", 1);
  CliResult named = run({"--weights", folder + "/named", "--weight-name", "model.model.norm.weight=model.last_norm.weight"});
  EXPECT_EQ(named.exitCode, 0) << named.error;

  Hub shape = good;
  shape.entries["model.norm.weight"].dims = {16, 2};
  EXPECT_NE(refusal(shape, 1).find("\"model.norm.weight\" is [16,2], the plan's \"model.model.norm.weight\" is [32]"),
            std::string::npos);

  error = refusal(good, 1, {"--weight-name", "model.norm=x"});
  EXPECT_NE(error.find("the plan has no parameter \"model.norm\""), std::string::npos) << error;
  error = refusal(good, 1, {"--init", "normal:0.1"});
  EXPECT_NE(error.find("--weights and --init both give initial weights"), std::string::npos) << error;

  fs::remove_all(folder + "/bad");
  fs::create_directories(folder + "/bad");
  CliResult empty = run({"--weights", folder + "/bad"});
  EXPECT_NE(empty.error.find("has neither model.safetensors nor model.safetensors.index.json"), std::string::npos);
  for (const char *index : {R"({"weight_map":{"a":"../trained.safetensors"}})", R"({"weight_map":{"a":7}})", "{}", "[",
                            R"({"weight_map":{"a":"absent.safetensors"}})"}) {
    writeFile(folder + "/bad/model.safetensors.index.json", index);
    CliResult refused = run({"--weights", folder + "/bad"});
    EXPECT_EQ(refused.exitCode, 1) << index;
    EXPECT_EQ(refused.error.rfind("error: ", 0), 0u) << refused.error;
  }
}

} // namespace
} // namespace zerocc::e2e
