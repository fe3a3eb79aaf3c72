#pragma once

#include "compiler/ir/module.h"

#include "llvm/ADT/StringRef.h"

namespace zerocc {

// What printer, parser and structural check share about the text form. Grammar: README.md beside this file.

/// `name` behind its sigil, quoted when it has characters outside [A-Za-z0-9_./:#~-]; a value (%) also when
/// it is all digits, because those are the numbers of values without a name.
std::string printName(char sigil, llvm::StringRef name);
bool isNameCharacter(char c);
bool isAllDigits(llvm::StringRef text);
/// "…" with \" \\ \n \xNN.
std::string quote(llvm::StringRef text);
/// A real number that reads back as the same bits, and as a real: 1.0, 1e-05, nan, -inf.
std::string printReal(double value);
std::string printAttribute(const AttributeValue &value);

/// One element as text (the shortest of its kind that reads back; booleans as words) from its little-endian
/// bytes.
std::string decodeElement(DType dtype, llvm::StringRef bytes);
/// The little-endian bytes of `value` rounded (floats, to nearest even) or converted to the dtype.
std::string encodeElement(DType dtype, double value);
std::string encodeElement(DType dtype, int64_t value);

/// What the values of one graph are called in text: by name; without one, by number in order of definition.
/// A name met again gets "~2", "~3", … so that the text stays unambiguous.
class ValueNames {
public:
  explicit ValueNames(const Graph &graph);
  std::string operator()(const Value *value) const;

private:
  llvm::DenseMap<const Value *, std::string> names_;
};

} // namespace zerocc
