#include "tools/ds_json.h"

#include "compiler/support/json_depth.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <tuple>

namespace zerocc {
namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostBytes = 4 << 20;

/// Texts in JSON hold no line ends.
std::string onOneLine(const std::string &text) {
  std::string line;
  for (char c : text) {
    const bool isSpace = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!isSpace || line.empty() || line.back() != ' ')
      line += isSpace ? ' ' : c;
  }
  return line;
}

/// Walks a text that LLVM's parser has accepted, and so checks nothing.
class Walker {
public:
  Walker(const std::string &text, const std::string &file, std::vector<JsonMember> &members,
         std::vector<Diagnostic> &findings)
      : text_(text), file_(file), members_(members), findings_(findings) {}

  void walk(bool isInList = false) {
    skipSpace();
    if (at_ >= text_.size())
      return;
    if (text_[at_] == '{')
      return walkObject(isInList);
    if (text_[at_] == '[')
      return walkList();
    if (text_[at_] == '"') {
      readString();
      return;
    }
    while (at_ < text_.size() && !std::strchr(",]} \t\r\n", text_[at_]))
      ++at_;
  }

private:
  void walkObject(bool isInList) {
    std::set<std::string> seen;
    for (++at_; skipSpace(), at_ < text_.size() && text_[at_] != '}';) {
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      const size_t begin = at_;
      const std::string key = readString();
      path_.push_back(key);
      JsonMember member{path_, line_, static_cast<int>(begin - lineStart_) + 1, ""};
      if (!seen.insert(key).second)
        findings_.push_back({file_ + ":" + std::to_string(member.line) + ":" + std::to_string(member.column) + ": " +
                                 jsonPath(path_) + " is given twice",
                             "keep one of the two"});
      skipSpace();
      ++at_; // ':'
      skipSpace();
      const size_t valueBegin = at_, index = members_.size();
      if (!isInList)
        members_.push_back(std::move(member));
      walk(isInList);
      if (!isInList)
        members_[index].text = onOneLine(text_.substr(valueBegin, at_ - valueBegin));
      path_.pop_back();
    }
    ++at_;
  }

  void walkList() {
    for (++at_; skipSpace(), at_ < text_.size() && text_[at_] != ']';) {
      if (text_[at_] == ',')
        ++at_;
      else
        walk(/*isInList=*/true);
    }
    ++at_;
  }

  std::string readString() {
    const size_t begin = at_;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      at_ += text_[at_] == '\\';
    at_ = std::min(at_ + 1, text_.size());
    auto value = llvm::json::parse(llvm::StringRef(text_).slice(begin, at_));
    if (!value) {
      llvm::consumeError(value.takeError());
      return {};
    }
    return value->getAsString().getValueOr("").str();
  }

  void skipSpace() {
    for (; at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]); ++at_)
      if (text_[at_] == '\n') {
        ++line_;
        lineStart_ = at_ + 1;
      }
  }

  const std::string &text_, &file_;
  std::vector<JsonMember> &members_;
  std::vector<Diagnostic> &findings_;
  std::vector<std::string> path_;
  size_t at_ = 0, lineStart_ = 0;
  int line_ = 1;
};

/// LLVM says "[line:column, byte=N]: what".
Error syntaxError(const std::string &text, const std::string &file, const std::string &message) {
  llvm::StringRef rest = message, place;
  std::string hint = "the file must be JSON";
  if (rest.consume_front("[")) {
    std::tie(place, rest) = rest.split("]: ");
    auto [lineColumn, byte] = place.split(", byte=");
    size_t at = 0;
    if (!byte.getAsInteger(10, at)) {
      // The parser stops at the character that it cannot read, or behind it.
      const std::string near = text.substr(at > 2 ? at - 2 : 0, 4);
      auto isClosing = [&](size_t i) { return i < text.size() && (text[i] == '}' || text[i] == ']'); };
      const size_t stop = at > 0 && isClosing(at - 1) ? at - 1 : at;
      const bool isClosed = isClosing(stop);
      const size_t last = text.find_last_not_of(" \t\r\n", stop > 0 ? stop - 1 : 0);
      if (near.find("//") != std::string::npos || near.find("/*") != std::string::npos ||
          near.find('#') != std::string::npos)
        hint = "JSON has no comments, though DeepSpeed's reader takes them: remove it";
      else if (last != std::string::npos && text[last] == ',' && stop > 0 && isClosed)
        hint = "JSON has no comma before a closing bracket, though DeepSpeed's reader takes it: remove it";
      else if (last != std::string::npos && (text[last] == '}' || text[last] == ']'))
        hint = "a comma before the closing bracket, or a missing one, is the usual cause";
    }
    return Error(file + ":" + lineColumn.str() + ": " + rest.str(), hint);
  }
  return Error(file + ": " + message, hint);
}

} // namespace

std::string jsonPath(const std::vector<std::string> &path) {
  std::string text;
  for (const std::string &key : path) {
    const bool isPlain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_';
    });
    text += (text.empty() ? "" : ".") + (isPlain ? key : "\"" + key + "\"");
  }
  return text;
}

Expected<JsonText> parseJsonText(const std::string &text, const std::string &file) {
  if (text.size() > kMostBytes)
    return Error(file + ": " + std::to_string(text.size()) + " bytes are more than a configuration has");
  if (isJsonDeeper(text, kMostDepth))
    return Error(file + ": nested deeper than " + std::to_string(kMostDepth) + " levels");
  auto value = llvm::json::parse(text);
  if (!value)
    return syntaxError(text, file, llvm::toString(value.takeError()));
  llvm::json::Object *root = value->getAsObject();
  if (!root)
    return Error(file + ":1:1: the file does not hold an object", "write {\"zero_optimization\": {\"stage\": 2}}");
  JsonText result;
  result.root = std::move(*root);
  std::vector<Diagnostic> findings;
  Walker(text, file, result.members, findings).walk();
  if (!findings.empty())
    return Error(std::move(findings));
  return result;
}

} // namespace zerocc
