#pragma once

#include "compiler/support/expected.h"

#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace zerocc {

/// A member of a JSON object, at any depth, in the order of the file.
struct JsonMember {
  std::vector<std::string> path; // keys from the root
  int line = 0, column = 0;      // of its key, from 1
  std::string text;              // its value as written
};

/// A JSON text that holds an object, and where its members stand.
struct JsonText {
  llvm::json::Object root;
  std::vector<JsonMember> members; // objects within lists are not looked into
};

/// Errors, each with `file:line:column`: what is no JSON (comments and trailing commas, which DeepSpeed's Hjson reader
/// allows, are named), a root that is no object, a key given twice in one object (LLVM's parser keeps one of them
/// silently), depth above 64, texts above 4 MiB.
Expected<JsonText> parseJsonText(const std::string &text, const std::string &file);

/// "a.b.c"; keys with other characters than letters, digits and underscores are quoted.
std::string jsonPath(const std::vector<std::string> &path);

} // namespace zerocc
