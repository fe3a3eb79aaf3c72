#include "runtime/weights/named_weights.h"

#include "runtime/weights/hub_index.h"

#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace zerocc {
namespace {

namespace fs = std::filesystem;
constexpr const char *kIndexFile = "model.safetensors.index.json", *kSingleFile = "model.safetensors";

/// What remains must still have two parts: "weight" alone is no name.
std::string withoutPrefix(const std::string &name, const std::string &prefix) {
  const bool isThere = name.compare(0, prefix.size(), prefix) == 0 && name.find('.', prefix.size()) != std::string::npos;
  return isThere ? name.substr(prefix.size()) : name;
}

/// "", "a.", "a.b." of "a.b.c.weight", for every name, shortest first.
std::vector<std::string> prefixesOf(const std::vector<std::string> &names) {
  std::set<std::string> found;
  for (const std::string &name : names) {
    size_t at = 0;
    for (int parts = 0; parts < 3 && (at = name.find('.', at)) != std::string::npos; ++parts)
      found.insert(name.substr(0, ++at));
    if (found.size() > 64)
      break;
  }
  std::vector<std::string> prefixes(found.begin(), found.end());
  prefixes.insert(prefixes.begin(), "");
  std::stable_sort(prefixes.begin(), prefixes.end(),
                   [](const std::string &a, const std::string &b) { return a.size() < b.size(); });
  return prefixes;
}

bool areReversed(const std::vector<int64_t> &a, const std::vector<int64_t> &b) {
  return a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
}

std::vector<int64_t> withoutOnes(std::vector<int64_t> dims) {
  std::erase(dims, 1);
  return dims;
}

/// The prefixes, ours and theirs, with which most names are found.
struct Prefixes {
  std::string ours, theirs;
  std::map<std::string, std::string> names; // of the files, without theirs -> as they are
};
Prefixes choosePrefixes(const std::vector<std::string> &wanted, const std::vector<std::string> &there) {
  Prefixes best;
  size_t most = 0;
  for (const std::string &theirs : prefixesOf(there)) {
    std::map<std::string, std::string> names;
    for (const std::string &name : there)
      names.emplace(withoutPrefix(name, theirs), name);
    for (const std::string &ours : prefixesOf(wanted)) {
      size_t found = 0;
      for (const std::string &name : wanted)
        found += names.count(withoutPrefix(name, ours));
      if (found > most || best.names.empty()) {
        most = found;
        best = {ours, theirs, names};
      }
    }
    if (most == wanted.size())
      break;
  }
  return best;
}

} // namespace

Status NamedWeights::add(const std::string &path) {
  ZEROCC_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  auto orientation = file.metadata().find(kOrientationKey);
  isOriented_ |= orientation != file.metadata().end() && orientation->second == kOrientationOnnx;
  for (const std::string &name : file.names())
    if (!tensors_.emplace(name, *file.find(name)).second)
      return Error(path + ": tensor \"" + name + "\" is in another file as well");
  return success();
}

Expected<NamedWeights> NamedWeights::open(const std::string &path) {
  NamedWeights weights;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    ZEROCC_TRY(weights.add(path));
  } else if (fs::exists(path + "/" + kIndexFile, ignored)) {
    ZEROCC_ASSIGN(std::shared_ptr<const MappedFile> index, MappedFile::open(path + "/" + kIndexFile));
    const Bytes text = index->bytes();
    ZEROCC_ASSIGN(std::set<std::string> files, filesOfHubIndex({reinterpret_cast<const char *>(text.data()), text.size()},
                                                               index->path()));
    for (const std::string &file : files)
      ZEROCC_TRY(weights.add(path + "/" + file));
  } else if (fs::exists(path + "/" + kSingleFile, ignored)) {
    ZEROCC_TRY(weights.add(path + "/" + kSingleFile));
  } else {
    return Error(path + ": has neither " + std::string(kSingleFile) + " nor " + kIndexFile,
                 "save the model there with save_pretrained, in safetensors");
  }
  for (const auto &[name, view] : weights.tensors_)
    weights.names_.push_back(name);
  return weights;
}

Expected<std::map<std::string, NamedWeights>> NamedWeights::openStates(const std::string &folder, int64_t &updates) {
  std::map<std::string, NamedWeights> states;
  const std::string path = folder + "/optimizer.safetensors";
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || !fs::exists(path, ignored))
    return states;
  ZEROCC_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  auto count = file.metadata().find("updates");
  if (count == file.metadata().end() || llvm::StringRef(count->second).getAsInteger(10, updates) || updates < 0)
    return Error(path + ": its metadata say no number of \"updates\"",
                 "convert it again with models/zerocc_export.py");
  for (const std::string &name : file.names()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || slash == 0)
      return Error(path + ": tensor \"" + name + "\" is not STATE/PARAMETER, as moment1/h.0.weight");
    NamedWeights &state = states[name.substr(0, slash)];
    state.tensors_.emplace(name.substr(slash + 1), *file.find(name));
  }
  for (auto &[state, weights] : states)
    for (const auto &[name, view] : weights.tensors_)
      weights.names_.push_back(name);
  return states;
}

const ArrayView *NamedWeights::find(const std::string &name) const {
  auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

Expected<std::vector<BoundTensor>> bindWeights(const NamedWeights &weights, const std::vector<WantedTensor> &wanted,
                                               const std::map<std::string, std::string> &given,
                                               std::vector<std::string> &notes) {
  std::vector<Diagnostic> findings;
  std::vector<std::string> wantedNames;
  for (const WantedTensor &tensor : wanted)
    if (!given.count(tensor.name))
      wantedNames.push_back(tensor.name);
  const Prefixes prefixes = choosePrefixes(wantedNames, weights.names());
  std::vector<BoundTensor> bound(wanted.size());
  std::set<std::string> used;
  for (const auto &entry : given)
    if (std::none_of(wanted.begin(), wanted.end(), [&](const WantedTensor &each) { return each.name == entry.first; }))
      findings.push_back({"the plan has no parameter \"" + entry.first + "\"", "zerocc inspect --parameters lists them"});
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto byHand = given.find(wanted[i].name);
    auto name = prefixes.names.find(withoutPrefix(wanted[i].name, prefixes.ours));
    if (byHand != given.end())
      bound[i].name = byHand->second;
    else if (name != prefixes.names.end())
      bound[i].name = name->second;
    bound[i].view = weights.find(bound[i].name);
    if (bound[i].view)
      used.insert(bound[i].name);
    else if (byHand != given.end())
      findings.push_back({"none of the files has \"" + byHand->second + "\"", ""});
  }
  auto unusedLike = [&](const WantedTensor &tensor) {
    std::vector<std::string> alike;
    for (const std::string &name : weights.names())
      if (!used.count(name) && withoutOnes(weights.find(name)->dims) == withoutOnes(tensor.dims))
        alike.push_back(name);
    return alike;
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (bound[i].view || given.count(wanted[i].name))
      continue;
    const std::vector<std::string> alike = unusedLike(wanted[i]);
    if (!wanted[i].isTied || alike.size() != 1) {
      findings.push_back({"\"" + wanted[i].name + "\" " + dimsText(wanted[i].dims) + " is in none of the files",
                          alike.empty() ? "" : "perhaps it is --weight-name " + wanted[i].name + "=" + alike[0]});
      continue;
    }
    bound[i] = {weights.find(alike[0]), alike[0]};
    used.insert(alike[0]);
    notes.push_back("tied \"" + wanted[i].name + "\" is taken from \"" + alike[0] + "\", the only unused one of its dims");
  }
  // How the exporter's own matrices lie shows by those that are not square.
  size_t reversed = 0, same = 0;
  std::string square;
  for (size_t i = 0; i < wanted.size(); ++i) {
    BoundTensor &each = bound[i];
    if (!each.view)
      continue;
    const bool isReversed = areReversed(each.view->dims, wanted[i].dims);
    const bool isSame = withoutOnes(each.view->dims) == withoutOnes(wanted[i].dims);
    if (!isConvertible(each.view->type, DType::f32))
      findings.push_back({"\"" + each.name + "\" is of " + std::string(elementTypeName(each.view->type)), ""});
    else if (!isSame && !isReversed)
      findings.push_back({"\"" + each.name + "\" is " + dimsText(each.view->dims) + ", the plan's \"" +
                              wanted[i].name + "\" is " + dimsText(wanted[i].dims),
                          ""});
    each.isTransposed = !isSame;
    if (wanted[i].wasTransposed && !weights.isOriented()) {
      reversed += isReversed && !isSame;
      same += isSame && !isReversed;
      if (isSame && isReversed) { // square
        each.isTransposed = true;
        square = wanted[i].name;
      }
    }
  }
  if (!square.empty() && same > 0)
    findings.push_back({"\"" + square + "\" is square, and of the matrices like it " + std::to_string(reversed) +
                            " are transposed in the files and " + std::to_string(same) + " are not: which way it lies cannot be told",
                        "export the model with models/zerocc_export.py, which keeps matrices as they are"});
  if (!findings.empty()) {
    constexpr size_t kMostFindings = 20;
    const size_t all = findings.size();
    if (all > kMostFindings) {
      findings.resize(kMostFindings);
      findings.push_back({"and " + std::to_string(all - kMostFindings) + " more", ""});
    }
    return Error(std::move(findings));
  }
  if (!prefixes.ours.empty() || !prefixes.theirs.empty())
    notes.push_back("weights are found by their names" +
                    (prefixes.ours.empty() ? "" : " without the model's \"" + prefixes.ours + "\"") +
                    (prefixes.theirs.empty() ? "" : " without the files' \"" + prefixes.theirs + "\""));
  std::string unused;
  size_t count = 0;
  for (const std::string &name : weights.names())
    if (!used.count(name) && ++count <= 5)
      unused += (unused.empty() ? "" : ", ") + name;
  if (count > 0)
    notes.push_back(std::to_string(count) + (count == 1 ? " tensor" : " tensors") + " of the files " +
                    (count == 1 ? "is" : "are") + " not used: " + unused + (count > 5 ? ", …" : ""));
  return bound;
}

void readBound(const BoundTensor &bound, int64_t begin, int64_t end, float *target) {
  const ArrayView &view = *bound.view;
  const int64_t size = byteSize(view.type);
  if (!bound.isTransposed) {
    convert(view.type, view.data + begin * size, end - begin, DType::f32, target);
    return;
  }
  const int64_t columns = view.dims[0], rows = view.dims[1]; // of the tensor that is wanted
  for (int64_t i = begin; i < end; ++i)
    convert(view.type, view.data + (i % columns * rows + i / columns) * size, 1, DType::f32, target + (i - begin));
}

} // namespace zerocc
