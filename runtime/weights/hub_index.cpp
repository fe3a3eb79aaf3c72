#include "runtime/weights/hub_index.h"

#include "compiler/support/json_depth.h"

#include "llvm/Support/JSON.h"

namespace zerocc {

Expected<std::set<std::string>> filesOfHubIndex(std::string_view text, const std::string &name) {
  constexpr size_t kMostBytes = size_t(1) << 28;
  if (text.size() > kMostBytes || isJsonDeeper(text, 8))
    return Error(name + ": is not an index of safetensors files");
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(llvm::StringRef(text.data(), text.size()));
  if (!value)
    return Error(name + ": is not JSON: " + llvm::toString(value.takeError()));
  const llvm::json::Object *root = value->getAsObject();
  const llvm::json::Object *map = root ? root->getObject("weight_map") : nullptr;
  if (!map)
    return Error(name + ": has no \"weight_map\"", "it is to be the index that save_pretrained writes");
  std::set<std::string> files;
  for (const auto &entry : *map) {
    auto file = entry.second.getAsString();
    if (!file || file->empty() || file->contains('/') || file->startswith("."))
      return Error(name + ": tensor \"" + entry.first.str() + "\" lies in no plain file name");
    files.insert(file->str());
  }
  return files;
}

} // namespace zerocc
