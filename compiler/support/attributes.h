#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace zerocc {

/// What an attribute of a node holds: an integer (also yes/no as 1/0), a real, a text, a list of integers.
using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

/// A node's attributes, sorted by name, so that equal nodes print equally.
class Attributes {
public:
  using Entry = std::pair<std::string, AttributeValue>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries) {
    for (const Entry &entry : entries)
      set(entry.first, entry.second);
  }

  void set(std::string_view name, AttributeValue value) {
    auto at = entries_.begin();
    while (at != entries_.end() && at->first < name)
      ++at;
    if (at != entries_.end() && at->first == name)
      at->second = std::move(value);
    else
      entries_.insert(at, {std::string(name), std::move(value)});
  }
  const AttributeValue *find(std::string_view name) const {
    for (const Entry &entry : entries_)
      if (entry.first == name)
        return &entry.second;
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t getInt(std::string_view name, int64_t otherwise = 0) const { return get<int64_t>(name, otherwise); }
  double getFloat(std::string_view name, double otherwise = 0) const { return get<double>(name, otherwise); }
  std::string getString(std::string_view name, std::string otherwise = "") const {
    return get<std::string>(name, std::move(otherwise));
  }
  std::vector<int64_t> getInts(std::string_view name) const { return get<std::vector<int64_t>>(name, {}); }
  const std::vector<Entry> &entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  bool operator==(const Attributes &) const = default;

private:
  template <typename T> T get(std::string_view name, T otherwise) const {
    const AttributeValue *value = find(name);
    if (!value)
      return otherwise;
    assert(std::holds_alternative<T>(*value) && "attribute of another kind");
    return std::get<T>(*value);
  }
  std::vector<Entry> entries_;
};

} // namespace zerocc
