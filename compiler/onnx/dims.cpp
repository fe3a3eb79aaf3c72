#include "compiler/onnx/dims.h"

#include "llvm/Support/MathExtras.h"

#include <cctype>
#include <optional>

namespace zerocc {
namespace {

/// Recursive descent over: sum = product {(+|-) product}; product = term {(*|//|/|%) term}; term = name | integer |
/// -term | ( sum ). Nesting is bounded by kMaxDepth.
class DimParser {
public:
  DimParser(const std::string &text, const DimBindings *bindings) : text_(text), bindings_(bindings) {}

  /// The value, or nullopt when the text is no expression. With bindings missing, names count as 1.
  std::optional<int64_t> parse() {
    int64_t value = sum(0);
    skipSpace();
    if (!ok_ || at_ != text_.size())
      return std::nullopt;
    return value;
  }

  std::set<std::string> names;
  std::string fault; // of an expression that is well-formed: an unbound name, a division by zero

private:
  static constexpr int kMaxDepth = 50;

  void skipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])))
      ++at_;
  }

  bool take(const char *token) {
    skipSpace();
    std::string_view wanted(token);
    if (text_.compare(at_, wanted.size(), wanted) != 0)
      return false;
    at_ += wanted.size();
    return true;
  }

  void note(bool overflow) {
    if (overflow)
      fault = "the value overflows";
  }

  int64_t sum(int depth) {
    int64_t value = product(depth);
    for (;;) {
      if (take("+"))
        note(llvm::AddOverflow(value, product(depth), value));
      else if (take("-"))
        note(llvm::SubOverflow(value, product(depth), value));
      else
        return value;
    }
  }

  int64_t product(int depth) {
    int64_t value = term(depth);
    for (;;) {
      if (take("*"))
        note(llvm::MulOverflow(value, term(depth), value));
      else if (take("//") || take("/"))
        value = divide(value, term(depth), false);
      else if (take("%"))
        value = divide(value, term(depth), true);
      else
        return value;
    }
  }

  /// Rounds down, as Python does.
  int64_t divide(int64_t a, int64_t b, bool remainder) {
    if (b == 0 || (a == INT64_MIN && b == -1)) {
      fault = "division by zero";
      return 0;
    }
    int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return remainder ? a - quotient * b : quotient;
  }

  int64_t term(int depth) {
    skipSpace();
    if (depth > kMaxDepth || at_ >= text_.size()) {
      ok_ = false;
      return 0;
    }
    if (take("("))
      return closing(sum(depth + 1));
    if (take("-"))
      return -term(depth + 1);
    size_t start = at_;
    auto isName = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':'; };
    while (at_ < text_.size() && isName(text_[at_]))
      ++at_;
    std::string word = text_.substr(start, at_ - start);
    if (word.empty()) {
      ok_ = false;
      return 0;
    }
    if (!std::isdigit(static_cast<unsigned char>(word[0])))
      return valueOf(word);
    int64_t number = 0;
    for (char c : word) {
      if (!std::isdigit(static_cast<unsigned char>(c)) || number > INT64_MAX / 10 - 10) {
        ok_ = false;
        return 0;
      }
      number = number * 10 + (c - '0');
    }
    return number;
  }

  int64_t closing(int64_t value) {
    if (!take(")"))
      ok_ = false;
    return value;
  }

  int64_t valueOf(const std::string &name) {
    names.insert(name);
    if (!bindings_)
      return 1;
    auto bound = bindings_->find(name);
    if (bound != bindings_->end())
      return bound->second;
    fault = "\"" + name + "\" is not bound";
    return 1;
  }

  const std::string &text_;
  const DimBindings *bindings_;
  size_t at_ = 0;
  bool ok_ = true;
};

} // namespace

std::set<std::string> dimNames(const std::string &dimParam) {
  DimParser parser(dimParam, nullptr);
  if (!parser.parse())
    return {dimParam};
  return parser.names;
}

Expected<int64_t> evaluateDim(const std::string &dimParam, const DimBindings &bindings) {
  if (auto whole = bindings.find(dimParam); whole != bindings.end())
    return whole->second;
  DimParser parser(dimParam, &bindings);
  std::optional<int64_t> value = parser.parse();
  if (!value)
    return Error("dimension \"" + dimParam + "\" is not bound");
  if (!parser.fault.empty())
    return Error("dimension \"" + dimParam + "\": " + parser.fault);
  return *value;
}

} // namespace zerocc
