#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace zerocc {

/// One finding about the user's input: where, what (both values), and how to mend it.
/// Lower-case start, no final period. `hint` may be empty.
struct Diagnostic {
  std::string message;
  std::string hint;
};

/// Everything found wrong at once. An `Error` always holds at least one finding.
class [[nodiscard]] Error {
public:
  explicit Error(std::string message, std::string hint = "") {
    findings_.push_back({std::move(message), std::move(hint)});
  }
  explicit Error(std::vector<Diagnostic> findings) : findings_(std::move(findings)) {
    assert(!findings_.empty() && "an error without a finding");
  }
  const std::vector<Diagnostic> &findings() const { return findings_; }

  /// The text a user sees: `error: …` lines, each with its `  hint: …` line. Ends in a newline.
  /// Control characters of names taken from files are escaped.
  std::string text() const;

  /// Puts `where: ` before every finding.
  Error in(const std::string &where) const;

private:
  std::vector<Diagnostic> findings_;
};

/// A value, or what is wrong with the input it was to be made from.
template <typename T> class [[nodiscard]] Expected {
public:
  Expected(T value) : content_(std::move(value)) {}
  Expected(Error error) : content_(std::move(error)) {}
  explicit operator bool() const { return std::holds_alternative<T>(content_); }
  T &operator*() { return get(); }
  const T &operator*() const { return const_cast<Expected *>(this)->get(); }
  T *operator->() { return &get(); }
  const T *operator->() const { return &const_cast<Expected *>(this)->get(); }
  const Error &error() const { return std::get<Error>(content_); }

private:
  T &get() {
    assert(*this && "value of a failed Expected");
    return std::get<T>(content_);
  }
  std::variant<T, Error> content_;
};

/// Success without a value.
struct Success {};
using Status = Expected<Success>;
inline Status success() { return Success{}; }

/// Replaces control characters and invalid UTF-8 lead bytes by \xNN, so that names read from a file
/// can be shown on a terminal.
std::string escapeForTerminal(const std::string &text);

} // namespace zerocc

/// Returns the error of an Expected/Status from the enclosing function.
#define ZEROCC_TRY(expression)                                                                                  \
  if (auto status_ = (expression); !status_)                                                                    \
  return status_.error()

/// `ZEROCC_ASSIGN(auto x, f());` declares x from a successful f(), or returns its error.
#define ZEROCC_CONCAT2(a, b) a##b
#define ZEROCC_CONCAT(a, b) ZEROCC_CONCAT2(a, b)
#define ZEROCC_ASSIGN(declaration, expression)                                                                  \
  auto ZEROCC_CONCAT(expected_, __LINE__) = (expression);                                                       \
  if (!ZEROCC_CONCAT(expected_, __LINE__))                                                                      \
    return ZEROCC_CONCAT(expected_, __LINE__).error();                                                          \
  declaration = std::move(*ZEROCC_CONCAT(expected_, __LINE__))
