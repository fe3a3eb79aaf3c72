// Lowering of Einsum.
//
// 1. "..." becomes letters of its own, aligned at the right; a letter twice in one operand becomes its
// diagonal.
// 2. A dim of 1 where another operand has more is left out: broadcasting.
// 3. From left to right two operands become one, [shared, rows, summed] x [shared, summed, columns]. A letter
// is summed
//    as soon as neither the result nor an operand to come has it.
// Left to right is not always the cheapest order; no other is tried.

#include "compiler/onnx/lowerings.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cctype>
#include <map>

namespace zerocc {
namespace {

using Letters = std::string;

/// A value with a letter for each of its dims.
struct Operand {
  Value *value = nullptr;
  Letters letters;
};

struct Equation {
  std::vector<Letters> operands;
  Letters result;
};

bool holds(const Letters &letters, char c) { return letters.find(c) != Letters::npos; }

constexpr int64_t kMostDots = 32; // below the letters

/// The letter of a dim under "...", counted from the right.
char dotsLetter(int64_t fromRight) { return static_cast<char>(1 + fromRight); }

Letters dotsLetters(int64_t count) {
  Letters out;
  for (int64_t i = count - 1; i >= 0; --i)
    out += dotsLetter(i);
  return out;
}

/// Replaces "..." and checks that everything else is a letter.
std::optional<Letters> withoutDots(NodeLowering &n, const std::string &text, int64_t dots) {
  Letters out;
  bool seen = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!seen && text.compare(at, 3, "...") == 0) {
      out += dotsLetters(dots);
      seen = true;
      at += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[at]))) {
      out += text[at];
    } else {
      n.fail("equation part \"" + text + "\": only letters and one \"...\" are known");
      return std::nullopt;
    }
  }
  return out;
}

/// "ij,jk->ik" taken apart, for operands of these ranks.
std::optional<Equation> parseEquation(NodeLowering &n) {
  std::string text = n.stringAttribute("equation", "");
  llvm::erase_value(text, ' ');
  const size_t arrow = text.find("->");
  std::vector<std::string> parts(1);
  for (char c : text.substr(0, arrow))
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  if (static_cast<int>(parts.size()) != n.operandCount()) {
    n.fail("equation \"" + text + "\" is for " + std::to_string(parts.size()) + " operands, the node has " +
           std::to_string(n.operandCount()));
    return std::nullopt;
  }
  Equation equation;
  std::map<char, int> counts;
  int64_t mostDots = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Value *x = n.in(static_cast<int>(i));
    if (!x)
      return std::nullopt;
    const bool hasDots = parts[i].find("...") != std::string::npos;
    const int64_t named = static_cast<int64_t>(parts[i].size()) - (hasDots ? 3 : 0),
                  dots = hasDots ? x->type.rank() - named : 0;
    if (dots < 0 || dots > kMostDots || named + dots != x->type.rank()) {
      n.fail("operand " + std::to_string(i) + " is " + print(x->type) + ", which does not fit \"" + parts[i] +
             "\"");
      return std::nullopt;
    }
    std::optional<Letters> letters = withoutDots(n, parts[i], dots);
    if (!letters)
      return std::nullopt;
    mostDots = std::max(mostDots, dots);
    for (char c : *letters)
      ++counts[c];
    equation.operands.push_back(*letters);
  }
  if (arrow != std::string::npos) {
    std::optional<Letters> result = withoutDots(n, text.substr(arrow + 2), mostDots);
    if (!result)
      return std::nullopt;
    equation.result = *result;
    if (mostDots > 0 && !holds(equation.result, dotsLetter(0))) {
      n.fail("equation \"" + text + "\": its result leaves out \"...\"");
      return std::nullopt;
    }
  } else { // implicitly: "...", then the letters that occur once, in order
    equation.result = dotsLetters(mostDots);
    for (const auto &[letter, count] : counts)
      if (count == 1 && std::isalpha(static_cast<unsigned char>(letter)))
        equation.result += letter;
  }
  for (char c : equation.result)
    if (!counts.count(c) || llvm::count(equation.result, c) > 1) {
      n.fail("equation \"" + text + "\": the result's letters do not fit");
      return std::nullopt;
    }
  return equation;
}

Letters select(const Letters &letters, const Letters &in, const Letters &notIn) {
  Letters out;
  for (char c : letters)
    if (holds(in, c) && !holds(notIn, c))
      out += c;
  return out;
}

Operand reorder(NodeLowering &n, const Operand &x, const Letters &to) {
  std::vector<int64_t> permutation;
  for (char c : to)
    permutation.push_back(static_cast<int64_t>(x.letters.find(c)));
  return {n.transpose(x.value, permutation), to};
}

/// Two dims of one letter: the elements where both are equal, which are size + 1 apart.
Operand diagonal(NodeLowering &n, Operand x) {
  for (size_t first = 0; x.value && first < x.letters.size(); ++first) {
    const size_t second = x.letters.find(x.letters[first], first + 1);
    if (second == Letters::npos)
      continue;
    const int64_t size = x.value->type.dims[first];
    if (x.value->type.dims[second] != size)
      return {n.fail("a letter stands for dims of different sizes in " + print(x.value->type)), ""};
    std::vector<int64_t> permutation;
    Dims joined;
    Letters letters;
    for (size_t i = 0; i < x.letters.size(); ++i)
      if (i != first && i != second) {
        permutation.push_back(static_cast<int64_t>(i));
        joined.push_back(x.value->type.dims[i]);
        letters += x.letters[i];
      }
    permutation.push_back(static_cast<int64_t>(first));
    permutation.push_back(static_cast<int64_t>(second));
    joined.push_back(size * size);
    Value *rows = n.reshape(n.transpose(x.value, permutation), joined);
    std::vector<int64_t> starts(joined.size(), 0), sizes(joined.begin(), joined.end()),
        steps(joined.size(), 1);
    sizes.back() = size;
    steps.back() = size > 1 ? size + 1 : 1;
    x = {n.slice(rows, starts, sizes, steps), letters + x.letters[first]};
    first = static_cast<size_t>(-1); // from the front again
  }
  return x;
}

/// Without the dims of 1 that others broadcast. All extents are then equal, or it fails.
bool dropBroadcast(NodeLowering &n, std::vector<Operand> &operands) {
  std::map<char, int64_t> extents;
  for (const Operand &x : operands)
    for (size_t i = 0; i < x.letters.size(); ++i) {
      auto [place, isNew] = extents.try_emplace(x.letters[i], x.value->type.dims[i]);
      if (!isNew && place->second == 1)
        place->second = x.value->type.dims[i];
    }
  for (Operand &x : operands) {
    Dims dims;
    Letters letters;
    for (size_t i = 0; i < x.letters.size(); ++i) {
      const int64_t dim = x.value->type.dims[i], extent = extents[x.letters[i]];
      if (dim != extent && dim != 1) {
        n.fail("a letter stands for dims of " + std::to_string(dim) + " and " + std::to_string(extent));
        return false;
      }
      if (dim == extent) {
        dims.push_back(dim);
        letters += x.letters[i];
      }
    }
    x = {n.reshape(x.value, dims), letters};
  }
  return true;
}

/// Sums over the dims whose letters are not kept.
Operand sumOver(NodeLowering &n, const Operand &x, const Letters &kept) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < x.letters.size(); ++i)
    if (!holds(kept, x.letters[i]))
      axes.push_back(static_cast<int64_t>(i));
  return {n.reduceSum(x.value, axes), select(x.letters, kept, "")};
}

/// x y elementwise over all their letters.
Operand outer(NodeLowering &n, const Operand &x, const Operand &y) {
  const Letters all = x.letters + select(y.letters, y.letters, x.letters);
  auto spread = [&](const Operand &from) -> Value * {
    Operand ordered = reorder(n, from, select(all, from.letters, ""));
    if (!ordered.value)
      return nullptr;
    Dims dims;
    size_t next = 0;
    for (char c : all)
      dims.push_back(holds(from.letters, c) ? ordered.value->type.dims[next++] : 1);
    return n.reshape(ordered.value, dims);
  };
  return {n.mul(spread(x), spread(y)), all};
}

Operand contract(NodeLowering &n, Operand x, Operand y, const Letters &kept) {
  x = sumOver(n, x, kept + y.letters);
  y = sumOver(n, y, kept + x.letters);
  const Letters shared = select(x.letters, y.letters, ""), batch = select(shared, kept, ""),
                summed = select(shared, shared, kept), rows = select(x.letters, x.letters, shared),
                columns = select(y.letters, y.letters, shared);
  if (!x.value || !y.value)
    return {};
  if (summed.empty())
    return outer(n, x, y);
  if (!isFloat(x.value->type.dtype))
    return sumOver(n, outer(n, x, y), kept);
  x = reorder(n, x, batch + rows + summed);
  y = reorder(n, y, batch + summed + columns);
  if (!x.value || !y.value)
    return {};
  auto extent = [](const Operand &from, size_t first, size_t length) {
    int64_t product = 1;
    for (size_t i = first; i < first + length; ++i)
      product *= from.value->type.dims[i];
    return product;
  };
  const Dims &xDims = x.value->type.dims, &yDims = y.value->type.dims;
  const size_t b = batch.size();
  Dims left(xDims.begin(), xDims.begin() + b), right = left,
                                               out(xDims.begin(), xDims.begin() + b + rows.size());
  left.append({extent(x, b, rows.size()), extent(x, b + rows.size(), summed.size())});
  right.append({extent(y, b, summed.size()), extent(y, b + summed.size(), columns.size())});
  out.append(yDims.begin() + b + summed.size(), yDims.end());
  Value *product = n.matmul(n.reshape(x.value, left), n.reshape(y.value, right));
  return {n.reshape(product, out), batch + rows + columns};
}

} // namespace

Values lowerEinsum(NodeLowering &n) {
  constexpr int kMaxOperands = 64; // each is contracted with what all later ones keep
  if (n.operandCount() > kMaxOperands)
    return {n.fail(std::to_string(n.operandCount()) + " operands; the limit is " + std::to_string(kMaxOperands),
                   "multiply in several steps")};
  std::optional<Equation> equation = parseEquation(n);
  if (!equation)
    return {nullptr};
  std::vector<Operand> operands;
  for (int i = 0; i < n.operandCount(); ++i) {
    operands.push_back(diagonal(n, {n.in(i), equation->operands[i]}));
    if (!operands.back().value)
      return {nullptr};
  }
  if (!dropBroadcast(n, operands))
    return {nullptr};
  Operand result = operands[0];
  for (size_t i = 1; result.value && i < operands.size(); ++i) {
    Letters kept = equation->result;
    for (size_t later = i + 1; later < operands.size(); ++later)
      kept += operands[later].letters;
    result = contract(n, result, operands[i], kept);
  }
  if (!result.value)
    return {nullptr};
  return {reorder(n, sumOver(n, result, equation->result), equation->result).value};
}

} // namespace zerocc
