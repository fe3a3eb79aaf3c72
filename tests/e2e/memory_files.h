#pragma once

#include "runtime/checkpoint/files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

namespace zerocc {

/// A disk in memory that keeps a log of what was asked of it, so that a loss of power at any moment can be played:
/// data that no sync followed may be there, missing, or half there; so may entries of folders that were not synced.
class MemoryFiles : public Files {
public:
  enum class Call : uint8_t { create, write, sync, close, open, size, readAt, rename, remove, makeFolder, syncFolder, list };
  /// Asked before each call: 0 lets it happen, -errno refuses it, a positive number shortens a write to that many bytes.
  std::function<int64_t(Call call, int64_t count)> fault;

  MemoryFiles() = default;

  int64_t logged() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(log_.size());
  }

  /// The disk after a loss of power behind the first `calls` changes; `isKill`: the process was killed, nothing is lost.
  std::unique_ptr<MemoryFiles> afterPowerLoss(int64_t calls, unsigned seed, bool isKill = false) const {
    std::lock_guard lock(mutex_);
    std::mt19937 random(seed);
    // What is certain: bytes with a later sync of their file, entries with a later sync of their folder.
    std::vector<bool> isKept(calls, isKill);
    std::set<int64_t> syncedFiles;
    std::set<std::string> syncedFolders;
    for (int64_t i = calls; i-- > 0;) {
      const Change &change = log_[i];
      if (change.call == Call::sync)
        syncedFiles.insert(change.node);
      else if (change.call == Call::syncFolder)
        syncedFolders.insert(change.path);
      else if (change.call == Call::write)
        isKept[i] = isKill || syncedFiles.count(change.node);
      else
        isKept[i] = isKill || syncedFolders.count(parentOf(change.path));
    }
    auto disk = std::make_unique<MemoryFiles>();
    std::map<int64_t, std::shared_ptr<Node>> nodes;
    for (int64_t i = 0; i < calls; ++i) {
      const Change &change = log_[i];
      const bool happens = isKept[i] || random() % 2;
      switch (change.call) {
      case Call::create:
        nodes[change.node] = std::make_shared<Node>();
        if (happens && disk->hasFolder(parentOf(change.path)))
          disk->tree_[change.path] = nodes[change.node];
        break;
      case Call::write: {
        std::string &bytes = nodes[change.node]->bytes;
        std::string data = change.bytes;
        if (!isKept[i])
          switch (random() % 4) {
          case 0:
            continue; // lost
          case 1:
            data.resize(random() % (data.size() + 1)); // cut
            break;
          case 2:
            std::fill(data.begin() + random() % (data.size() + 1), data.end(), '\0'); // the length came first
            break;
          default:
            break;
          }
        if (bytes.size() < change.offset + data.size())
          bytes.resize(change.offset + data.size());
        std::copy(data.begin(), data.end(), bytes.begin() + static_cast<int64_t>(change.offset));
        break;
      }
      case Call::makeFolder:
        if (happens && disk->hasFolder(parentOf(change.path)))
          disk->tree_[change.path] = folderNode();
        break;
      case Call::rename:
        if (happens)
          disk->move(change.path, change.to);
        break;
      case Call::remove:
        if (happens)
          disk->removeTree(change.path); // its files' removal may be lost, not its own
        break;
      default:
        break;
      }
    }
    return disk;
  }

  int create(const std::string &path) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::create, 0))
      return static_cast<int>(refused);
    if (!hasFolder(parentOf(path)))
      return -ENOENT;
    auto node = std::make_shared<Node>();
    node->number = ++nodes_;
    tree_[path] = node;
    log_.push_back({Call::create, path, "", node->number, 0, ""});
    return descriptorOf(node);
  }
  int64_t write(int file, const void *bytes, int64_t count) override {
    std::lock_guard lock(mutex_);
    int64_t answer = ask(Call::write, count);
    if (answer < 0)
      return answer;
    if (answer > 0)
      count = std::min(count, answer);
    Node &node = *descriptors_.at(file);
    log_.push_back({Call::write, "", "", node.number, node.bytes.size(), std::string(static_cast<const char *>(bytes), count)});
    node.bytes.append(static_cast<const char *>(bytes), count);
    return count;
  }
  int sync(int file) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::sync, 0))
      return static_cast<int>(refused);
    log_.push_back({Call::sync, "", "", descriptors_.at(file)->number, 0, ""});
    return 0;
  }
  int close(int file) override {
    std::lock_guard lock(mutex_);
    descriptors_.erase(file);
    return static_cast<int>(ask(Call::close, 0));
  }
  int open(const std::string &path) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::open, 0))
      return static_cast<int>(refused);
    auto at = tree_.find(path);
    return at == tree_.end() ? -ENOENT : at->second->isFolder ? -EINVAL : descriptorOf(at->second);
  }
  int64_t size(int file) override {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(descriptors_.at(file)->bytes.size());
  }
  int64_t readAt(int file, void *bytes, int64_t count, int64_t offset) override {
    std::lock_guard lock(mutex_);
    int64_t answer = ask(Call::readAt, count);
    if (answer < 0)
      return answer;
    const std::string &content = descriptors_.at(file)->bytes;
    const int64_t got = std::max<int64_t>(0, std::min(answer > 0 ? std::min(count, answer) : count,
                                                      static_cast<int64_t>(content.size()) - offset));
    std::memcpy(bytes, content.data() + offset, got);
    return got;
  }
  int rename(const std::string &from, const std::string &to) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::rename, 0))
      return static_cast<int>(refused);
    log_.push_back({Call::rename, from, to, 0, 0, ""});
    return move(from, to) ? 0 : -ENOENT;
  }
  int remove(const std::string &path) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::remove, 0))
      return static_cast<int>(refused);
    if (!tree_.count(path))
      return -ENOENT;
    if (!namesIn(path).empty())
      return -ENOTEMPTY;
    log_.push_back({Call::remove, path, "", 0, 0, ""});
    tree_.erase(path);
    return 0;
  }
  int makeFolder(const std::string &path) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::makeFolder, 0))
      return static_cast<int>(refused);
    if (tree_.count(path))
      return -EEXIST;
    if (!hasFolder(parentOf(path)))
      return -ENOENT;
    log_.push_back({Call::makeFolder, path, "", 0, 0, ""});
    tree_[path] = folderNode();
    return 0;
  }
  int syncFolder(const std::string &path) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::syncFolder, 0))
      return static_cast<int>(refused);
    log_.push_back({Call::syncFolder, path == "/" ? "" : path, "", 0, 0, ""});
    return 0;
  }
  int list(const std::string &path, std::vector<std::string> &names) override {
    std::lock_guard lock(mutex_);
    if (int64_t refused = ask(Call::list, 0))
      return static_cast<int>(refused);
    if (!hasFolder(path))
      return -ENOENT;
    names = namesIn(path);
    return 0;
  }

private:
  struct Node {
    bool isFolder = false;
    int64_t number = 0;
    std::string bytes;
  };
  struct Change {
    Call call;
    std::string path, to;
    int64_t node;
    size_t offset;
    std::string bytes;
  };

  static std::shared_ptr<Node> folderNode() {
    auto node = std::make_shared<Node>();
    node->isFolder = true;
    return node;
  }
  static std::string parentOf(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
  }
  int64_t ask(Call call, int64_t count) const { return fault ? fault(call, count) : 0; }
  bool hasFolder(const std::string &path) const {
    auto at = tree_.find(path);
    return path == "." || path.empty() || (at != tree_.end() && at->second->isFolder);
  }
  std::vector<std::string> namesIn(const std::string &path) const {
    std::vector<std::string> names;
    for (const auto &[each, node] : tree_)
      if (parentOf(each) == path)
        names.push_back(each.substr(path.size() + 1));
    return names;
  }
  int descriptorOf(std::shared_ptr<Node> node) {
    descriptors_[++descriptor_] = std::move(node);
    return descriptor_;
  }
  bool move(const std::string &from, const std::string &to) {
    if (!tree_.count(from))
      return false;
    std::map<std::string, std::shared_ptr<Node>> moved;
    for (auto at = tree_.begin(); at != tree_.end();)
      if (at->first == from || at->first.rfind(from + "/", 0) == 0) {
        moved[to + at->first.substr(from.size())] = at->second;
        at = tree_.erase(at);
      } else {
        ++at;
      }
    removeTree(to);
    tree_.merge(moved);
    return true;
  }
  void removeTree(const std::string &path) {
    for (auto at = tree_.begin(); at != tree_.end();)
      at = at->first == path || at->first.rfind(path + "/", 0) == 0 ? tree_.erase(at) : std::next(at);
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Node>> tree_;
  std::map<int, std::shared_ptr<Node>> descriptors_;
  std::vector<Change> log_;
  int descriptor_ = 100;
  int64_t nodes_ = 0;
};

} // namespace zerocc
