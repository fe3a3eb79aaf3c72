#include "tools/run_inference.h"

#include "runtime/data/npy.h"
#include "runtime/data/plan_inputs.h"
#include "tools/run_sample.h"

#include <algorithm>
#include <cstdio>

namespace zerocc {
namespace {

void say(const std::string &line) { std::fprintf(stderr, "%s\n", escapeForTerminal(line).c_str()); }

/// One output on its way into its file, in the order of the samples.
struct OutputFile {
  int index = 0; // of the plan's outputs
  std::string path;
  AtomicFile file;
  int64_t rowsLeft = 0, rowBytes = 0; // of the leading dim
};

std::string listOutputs(const std::vector<OutputSpec> &outputs) {
  std::string text;
  for (const OutputSpec &output : outputs)
    text += (text.empty() ? "" : ", ") + output.name + " " + std::string(dtypeName(output.dtype)) + dimsText(output.dims);
  return text;
}

/// Which output goes to which file: NAME=FILE.npy, or FILE.npy for the only one.
Expected<std::vector<std::pair<int, std::string>>> targets(const std::vector<std::string> &flags,
                                                           const std::vector<OutputSpec> &outputs) {
  std::vector<std::pair<int, std::string>> targets;
  for (const std::string &text : flags) {
    int index = -1;
    std::string path = text;
    for (size_t o = 0; o < outputs.size(); ++o)
      if (text.rfind(outputs[o].name + "=", 0) == 0 &&
          (index < 0 || outputs[o].name.size() > outputs[index].name.size())) {
        index = static_cast<int>(o);
        path = text.substr(outputs[o].name.size() + 1);
      }
    if (index < 0 && outputs.size() == 1 && text.find('=') == std::string::npos)
      index = 0;
    if (index < 0)
      return Error("--output: \"" + text + "\" does not say which output it takes",
                   "write NAME=FILE.npy; the plan's outputs are " + listOutputs(outputs));
    if (path.size() < 5 || path.compare(path.size() - 4, 4, ".npy") != 0)
      return Error("--output: \"" + text + "\" is no FILE.npy");
    for (const auto &[other, otherPath] : targets)
      if (other == index || otherPath == path)
        return Error("--output: \"" + text + "\" repeats an output or a file");
    targets.push_back({index, path});
  }
  return targets;
}

/// Creates the file with its header: [samples × rows, …], or [micro-batches, …] for what is no sequence of samples.
Expected<OutputFile> openOutput(int index, const std::string &path, const OutputSpec &output, int64_t samples,
                                int64_t microBatches) {
  std::vector<int64_t> dims = output.dims;
  int64_t rows = 0;
  if (output.rowsPerSample > 0) {
    rows = dims[0] = output.rowsPerSample * samples;
  } else {
    rows = microBatches;
    dims.insert(dims.begin(), rows);
  }
  const std::optional<int64_t> elements = countElements(dims);
  if (!elements)
    return Error(path + ": " + dimsText(dims) + " is too large for a file");
  ZEROCC_ASSIGN(AtomicFile file, AtomicFile::create(path));
  ZEROCC_TRY(file.write(npyHeader(elementType(output.dtype), dims)));
  say("output " + output.name + ": " + std::string(dtypeName(output.dtype)) + dimsText(dims) + " to " + path +
      (output.rowsPerSample > 0 ? "" : ", one row a micro-batch"));
  return OutputFile{index, path, std::move(file), rows, rows > 0 ? *elements / rows * byteSize(output.dtype) : 0};
}

Status writeOutputs(const plan::Plan &plan, const InferenceRun &run) {
  const std::vector<OutputSpec> outputs = outputsOf(plan);
  ZEROCC_ASSIGN(auto wanted, targets(run.flags.outputs, outputs));
  DataOptions options;
  options.seed = run.seed;
  options.window = batchShape(plan).ranks;
  options.pipe.timeoutSeconds = run.pipeSeconds;
  ZEROCC_ASSIGN(DataSet data, DataSet::open(run.data, inputSpecs(plan), inferenceShape(plan), options));
  for (const std::string &line : data.describe())
    say(line);
  const auto microBatch = static_cast<int64_t>(plan.micro_batch());
  const int64_t ranks = batchShape(plan).ranks;
  int64_t samples = data.samples();
  if (run.steps > 0) {
    samples = run.steps * ranks * microBatch;
    if (data.samples() > 0 && samples > data.samples())
      return Error("--steps " + std::to_string(run.steps) + " takes " + std::to_string(samples) + " samples, the data have " +
                       std::to_string(data.samples()),
                   "leave --steps out: all samples are taken once");
  } else if (samples == 0) {
    return Error("nothing says how many samples there are: no input has data of a length of its own",
                 "give --steps N: rounds of one micro-batch of " + std::to_string(microBatch) + " on each rank");
  }
  const int64_t microBatches = (samples + microBatch - 1) / microBatch;
  std::vector<OutputFile> files;
  for (const auto &[index, path] : wanted) {
    ZEROCC_ASSIGN(auto file, openOutput(index, path, outputs[index], samples, microBatches));
    files.push_back(std::move(file));
  }

  ZEROCC_ASSIGN(auto inference, Inference::create(plan, run.values, run.group));
  say(std::to_string(ranks) + " ranks, numerics key " + plan.numerics_key());
  for (int64_t round = 0; round * ranks < microBatches; ++round) {
    ZEROCC_TRY(inference->run(data, round));
    for (int rank = 0; rank < ranks; ++rank)
      for (OutputFile &file : files) { // samples behind the last one are of the next epoch: not written
        const OutputSpec &output = outputs[file.index];
        const int64_t rows = std::min(file.rowsLeft, output.rowsPerSample > 0 ? output.dims[0] : 1);
        ZEROCC_TRY(file.file.write(Bytes(reinterpret_cast<const unsigned char *>(inference->output(rank, file.index)),
                                         static_cast<size_t>(rows * file.rowBytes))));
        file.rowsLeft -= rows;
      }
  }
  for (OutputFile &file : files)
    ZEROCC_TRY(file.file.commit());
  for (const OutputFile &file : files)
    say("wrote " + file.path);
  return success();
}

} // namespace

Status runInference(const plan::Plan &plan, const InferenceRun &run) {
  if (!run.flags.sample.empty())
    return runSample(plan, run);
  if (run.flags.outputs.empty())
    return Error("the plan infers, and nothing says what to do with its outputs",
                 "give --output FILE.npy or NAME=FILE.npy, or --sample TEXT; its outputs are " +
                     listOutputs(outputsOf(plan)));
  return writeOutputs(plan, run);
}

} // namespace zerocc
