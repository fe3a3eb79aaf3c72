#include "runtime/weights/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace zerocc {

constexpr double kLeastScale = 1e-6, kLeastGradient = 1e-3;

static double largestMagnitude(const ArrayView &array) {
  double largest = 0;
  for (int64_t i = 0; i < array.elements; ++i)
    largest = std::max(largest, std::fabs(elementAsDouble(array.type, array.data, i)));
  return largest;
}

Expected<Comparison> Comparison::open(const std::string &path, const std::string &prefix,
                                      const Tolerances &tolerances) {
  ZEROCC_ASSIGN(NpzFile archive, NpzFile::open(path));
  Comparison comparison(std::move(archive));
  comparison.prefix_ = prefix;
  comparison.tolerances_ = tolerances;
  if (!comparison.archive_.has(prefix + "loss"))
    return Error(path + ": has no array \"" + prefix + "loss\", so it is no recorded training",
                 "models/record.py writes them");
  ZEROCC_ASSIGN(const ArrayView *loss, comparison.array(prefix + "loss"));
  comparison.losses_ = loss->elements;
  for (const std::string &name : comparison.gradients()) {
    ZEROCC_ASSIGN(const ArrayView *gradient, comparison.array("grad/" + name));
    comparison.largestGradient_ = std::max(comparison.largestGradient_, largestMagnitude(*gradient));
  }
  return comparison;
}

std::vector<std::string> Comparison::namesBehind(const std::string &prefix) const {
  std::vector<std::string> names;
  for (const std::string &name : archive_.names())
    if (name.starts_with(prefix))
      names.push_back(name.substr(prefix.size()));
  return names;
}

std::vector<std::string> Comparison::buffers() const {
  return prefix_.empty() ? namesBehind("buffer/") : std::vector<std::string>();
}

Expected<const ArrayView *> Comparison::array(const std::string &key) {
  auto at = arrays_.find(key);
  if (at == arrays_.end()) {
    ZEROCC_ASSIGN(ArrayView array, archive_.read(key));
    if (!isFloat(array.type))
      return Error(archive_.path() + ": array \"" + key + "\" is " +
                   std::string(elementTypeName(array.type)) + ", not of floats");
    at = arrays_.emplace(key, std::move(array)).first;
  }
  return &at->second;
}

static double distance(double got, double wanted) {
  return got == wanted ? 0 : std::fabs(got - wanted); // equal infinities are equal
}

Status Comparison::compareScalar(const std::string &name, int64_t step, double got) {
  std::string key = prefix_ + name;
  ZEROCC_ASSIGN(const ArrayView *recorded, array(key));
  if (step < 0 || step >= recorded->elements)
    return success();
  double wanted = elementAsDouble(recorded->type, recorded->data, step);
  // each step has its own scale; a NaN is never replaced
  Difference next{.key = key, .absolute = distance(got, wanted), .at = step, .got = got, .wanted = wanted};
  next.scale = std::max(std::fabs(wanted), kLeastScale);
  double spread = 0;
  if (prefix_.empty() && archive_.has("spread/" + name)) {
    ZEROCC_ASSIGN(const ArrayView *spreads, array("spread/" + name));
    if (step < spreads->elements)
      spread = elementAsDouble(spreads->type, spreads->data, step);
  }
  next.allowed = tolerances_.loss * next.scale + tolerances_.spread * spread;
  Difference &worst = differences_[key];
  next.compared = worst.compared + 1;
  next.elements = recorded->elements;
  if (next.compared == 1 || (!std::isnan(worst.absolute) && !(next.absolute / next.allowed <= worst.absolute / worst.allowed)))
    worst = next;
  worst.compared = next.compared;
  return success();
}

Status Comparison::compareLoss(int64_t step, double loss) { return compareScalar("loss", step, loss); }
Status Comparison::compareGradNorm(int64_t step, double norm) {
  return compareScalar("grad_norm", step, norm);
}

Status Comparison::compare(const std::string &key, int64_t begin, std::span<const float> got,
                           double tolerance, double leastScale, double spread) {
  ZEROCC_ASSIGN(const ArrayView *recorded, array(key));
  if (begin < 0 || begin > recorded->elements || int64_t(got.size()) > recorded->elements - begin)
    return Error(archive_.path() + ": array \"" + key + "\" has " + std::to_string(recorded->elements) +
                     " elements, the run has " + std::to_string(begin) + " + " + std::to_string(got.size()),
                 "is it the recording of this model?");
  auto [at, isNew] = differences_.try_emplace(key);
  Difference &worst = at->second;
  if (isNew) {
    worst.key = key;
    worst.elements = recorded->elements;
    worst.scale = std::max(largestMagnitude(*recorded), leastScale);
    worst.allowed = tolerance * worst.scale + spread;
  }
  worst.compared += static_cast<int64_t>(got.size());
  for (size_t i = 0; i < got.size() && !std::isnan(worst.absolute); ++i) {
    double wanted = elementAsDouble(recorded->type, recorded->data, begin + int64_t(i));
    double absolute = distance(got[i], wanted);
    if (absolute <= worst.absolute)
      continue;
    worst.absolute = absolute;
    worst.at = begin + int64_t(i);
    worst.got = got[i];
    worst.wanted = wanted;
  }
  return success();
}

Status Comparison::compareGradient(const std::string &name, int64_t begin, std::span<const float> got) {
  return compare("grad/" + name, begin, got, tolerances_.gradient,
                 std::max(kLeastScale, kLeastGradient * largestGradient_), 0);
}

Expected<double> Comparison::allowedSpread(const std::string &key) {
  if (!archive_.has(key))
    return 0.0;
  ZEROCC_ASSIGN(const ArrayView *recorded, array(key));
  return tolerances_.spread * largestMagnitude(*recorded);
}

Status Comparison::compareWeight(const std::string &name, int64_t begin, std::span<const float> got) {
  // of the recording itself, or of the unprefixed one where the update is the same
  ZEROCC_ASSIGN(double spread, allowedSpread((prefix_ == "clip/" ? "" : prefix_) + "spread/" + name));
  return compare(prefix_ + "weight/" + name, begin, got, tolerances_.weight, kLeastScale, spread);
}

Status Comparison::compareBuffer(const std::string &name, int64_t begin, std::span<const float> got) {
  ZEROCC_ASSIGN(double spread, allowedSpread("spread/" + name));
  return compare("buffer/" + name, begin, got, tolerances_.weight, kLeastScale, spread);
}

std::vector<std::string> Comparison::missing() const {
  std::vector<std::string> keys;
  const std::pair<std::string, std::vector<std::string>> kinds[] = {
      {"grad/", gradients()}, {prefix_ + "weight/", weights()}, {"buffer/", buffers()}};
  for (const auto &[prefix, names] : kinds)
    for (const std::string &name : names) {
      auto at = differences_.find(prefix + name);
      if (at == differences_.end() || at->second.compared < at->second.elements)
        keys.push_back(prefix + name);
    }
  return keys;
}

bool Comparison::passed() const {
  bool passes = !differences_.empty();
  for (const auto &[key, difference] : differences_)
    passes &= difference.passes();
  return passes;
}

static std::string differenceText(const Difference &difference, bool perStep) {
  char text[200];
  std::snprintf(text, sizeof text, "%s %lld: %.9g, recorded %.9g, off by %.2g, scaled %.2g",
                perStep ? "step" : "element", static_cast<long long>(difference.at), difference.got,
                difference.wanted, difference.absolute, difference.scaled());
  return text;
}

std::string Comparison::report() const {
  std::string text, failures;
  for (const char *kind : {"loss", "grad_norm", "grad/", "weight/", "buffer/"}) {
    bool perStep = kind[std::char_traits<char>::length(kind) - 1] != '/';
    std::string prefix = (kind == std::string_view("grad/") || kind == std::string_view("buffer/") ? "" : prefix_) + kind;
    const Difference *worst = nullptr;
    int count = 0, failed = 0;
    for (const auto &[key, difference] : differences_) {
      if (perStep ? key != prefix : !key.starts_with(prefix))
        continue;
      ++count;
      // NaN is the worst; among failures and passes, the nearest to (or furthest beyond) what is allowed
      auto badness = [](const Difference &d) {
        return std::isnan(d.absolute) ? HUGE_VAL : d.absolute / std::max(d.allowed, 1e-300);
      };
      if (!worst || badness(difference) > badness(*worst))
        worst = &difference;
      if (!difference.passes()) {
        ++failed;
        failures += "  differs: " + key + ": " + differenceText(difference, perStep) + "\n";
      }
    }
    if (!worst)
      continue;
    text += prefix + (perStep ? "" : ": " + std::to_string(count) + " tensors") +
            (failed ? ", " + std::to_string(failed) + " differ" : ", within tolerance") + "; worst" +
            (perStep ? "" : " " + worst->key.substr(prefix.size())) + " " + differenceText(*worst, perStep) +
            "\n";
  }
  return text + failures;
}

} // namespace zerocc
