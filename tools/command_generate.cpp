#include "compiler/onnx/generate.h"
#include "runtime/data/atomic_file.h"
#include "tools/command.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

namespace zerocc {
namespace {

struct Preset {
  const char *name;
  GptShape shape;
};
// Of the papers; head counts and widths of gpt3-1.3b and gpt3-13b are those that divide.
constexpr Preset kPresets[] = {
    {"gpt2", {12, 768, 12, 50257, 1024}},        {"gpt2-medium", {24, 1024, 16, 50257, 1024}},
    {"gpt2-large", {36, 1280, 20, 50257, 1024}}, {"gpt2-xl", {48, 1600, 25, 50257, 1024}},
    {"gpt3-1.3b", {24, 2048, 16, 50257, 2048}},  {"gpt3-6.7b", {32, 4096, 32, 50257, 2048}},
    {"gpt3-13b", {40, 5120, 40, 50257, 2048}},   {"gpt3-175b", {96, 12288, 96, 50257, 2048}},
};

std::vector<std::string> presetNames() {
  std::vector<std::string> names;
  for (const Preset &preset : kPresets)
    names.push_back(preset.name);
  return names;
}

struct GptFlags {
  std::string output, preset;
  std::optional<int64_t> layers, hidden, heads, vocab, sequence;

  GptShape shape() const {
    GptShape shape;
    for (const Preset &row : kPresets)
      if (preset == row.name)
        shape = row.shape;
    shape.layers = layers.value_or(shape.layers);
    shape.hidden = hidden.value_or(shape.hidden);
    shape.heads = heads.value_or(shape.heads);
    shape.vocab = vocab.value_or(shape.vocab);
    shape.sequence = sequence.value_or(shape.sequence);
    return shape;
  }
};

struct MlpFlags {
  std::string output;
  MlpShape shape;
};

std::string weightsFile(const std::string &output) {
  return std::filesystem::path(output).filename().string() + ".data";
}

Status writeModel(const Expected<GeneratedModel> &model, const std::string &output, const char *loss) {
  if (!model)
    return model.error().in("zerocc generate");
  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(output));
  ZEROCC_TRY(file.write(model->bytes));
  ZEROCC_TRY(file.commit());
  std::printf("%lld parameters, %lld nodes, %lld bytes; f32 weights of %.1f GiB are not there\n",
              static_cast<long long>(model->parameterElements), static_cast<long long>(model->nodes),
              static_cast<long long>(model->bytes.size()),
              static_cast<double>(model->parameterElements) * 4 / (int64_t(1) << 30));
  std::fprintf(stderr,
               "wrote %s\nto plan: zerocc compile %s -o PLAN.zplan --loss %s --ranks N --stage 3\n"
               "to train: zero-run PLAN.zplan --init normal:0.02 --data SOURCE --steps N\n",
               output.c_str(), output.c_str(), loss);
  return success();
}

int exitCodeOf(const Status &done) { return done ? static_cast<int>(kDone) : refuse(done.error()); }

} // namespace

void addGenerateCommand(CLI::App &app, Run &run) {
  CLI::App *command =
      app.add_subcommand("generate", "write the ONNX graph of a model of any size, without weights");
  command->footer("Example:\n  zerocc generate gpt --preset gpt3-175b -o gpt.onnx\n"
                  "llama and mixtral are not in this version.");
  command->require_subcommand(1);

  auto gpt = std::make_shared<GptFlags>();
  CLI::App *gptCommand = command->add_subcommand("gpt", "a decoder like GPT-2 and GPT-3");
  gptCommand->footer("Example:\n  zerocc generate gpt --layers 4 --hidden 128 --heads 4 --vocab 256 "
                     "--sequence 64 -o gpt.onnx\n"
                     "  zerocc generate gpt --preset gpt3-175b -o gpt.onnx");
  gptCommand->add_option("--preset", gpt->preset, "sizes to start from (default gpt2); flags beside it win")
      ->check(CLI::IsMember(presetNames()));
  gptCommand->add_option("--layers", gpt->layers, "attention and MLP blocks");
  gptCommand->add_option("--hidden", gpt->hidden, "features of a token");
  gptCommand->add_option("--heads", gpt->heads, "attention heads; they divide --hidden");
  gptCommand->add_option("--vocab", gpt->vocab, "different tokens");
  gptCommand->add_option("--sequence", gpt->sequence, "tokens of a sample");
  gptCommand->add_option("-o,--output", gpt->output, "MODEL.onnx to write")->required();
  gptCommand->callback([gpt, &run] {
    run = [gpt] {
      return exitCodeOf(writeModel(generateGpt(gpt->shape(), weightsFile(gpt->output)), gpt->output,
                                   "cross-entropy:logits"));
    };
  });

  auto mlp = std::make_shared<MlpFlags>();
  CLI::App *mlpCommand = command->add_subcommand("mlp", "linear layers with relu between them");
  mlpCommand->footer("Example:\n  zerocc generate mlp --layers 8 --hidden 1024 -o mlp.onnx");
  mlpCommand->add_option("--layers", mlp->shape.layers, "linear layers");
  mlpCommand->add_option("--hidden", mlp->shape.hidden, "features between them");
  mlpCommand->add_option("--inputs", mlp->shape.inputs, "features of a sample");
  mlpCommand->add_option("--outputs", mlp->shape.outputs, "features of the result");
  mlpCommand->add_option("-o,--output", mlp->output, "MODEL.onnx to write")->required();
  mlpCommand->callback([mlp, &run] {
    run = [mlp] {
      return exitCodeOf(writeModel(generateMlp(mlp->shape, weightsFile(mlp->output)), mlp->output, "mse:y"));
    };
  });
}

} // namespace zerocc
