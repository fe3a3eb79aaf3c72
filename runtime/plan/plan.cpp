#include "runtime/plan/plan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace zerocc {
namespace {

constexpr std::string_view kMagic("ZPLAN\0\0\1", 8); // the last byte numbers this framing
constexpr size_t kHashBytes = 16;
constexpr size_t kHeaderBytes = 8 + kHashBytes;
constexpr int64_t kMaxPlanBytes = int64_t(1) << 30; // a million instructions are some 200 MB

std::string hashOf(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return std::string(reinterpret_cast<const char *>(canonical.digest), kHashBytes);
}

std::string hexOf(std::string_view bytes) {
  static const char *digits = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

std::string serialize(const plan::Plan &plan) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true); // maps in key order
  plan.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

/// Closes a file descriptor when it goes out of scope.
class File {
public:
  File(const std::string &path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0)
      close(descriptor_);
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  int descriptor() const { return descriptor_; }

private:
  int descriptor_;
};

Error systemError(const std::string &path, const std::string &what) {
  return Error(path + ": " + what + ": " + std::strerror(errno));
}

Expected<std::string> readAll(const std::string &path) {
  File file(path, O_RDONLY | O_NONBLOCK); // opening a pipe must not hang
  if (file.descriptor() < 0)
    return systemError(path, "cannot be read");
  struct stat status;
  if (fstat(file.descriptor(), &status) != 0)
    return systemError(path, "cannot be read");
  if (!S_ISREG(status.st_mode))
    return Error(path + ": is not a file");
  if (status.st_size > kMaxPlanBytes)
    return Error(path + ": is too large for a plan: " + std::to_string(status.st_size) + " bytes, at most " +
                 std::to_string(kMaxPlanBytes));
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = read(file.descriptor(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return systemError(path, "cannot be read");
    if (n == 0)
      break; // shrunk while we read: the checksum will say so
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Status writeAll(const std::string &path, const std::string &bytes) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.descriptor() < 0)
    return systemError(path, "cannot be written");
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = write(file.descriptor(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return systemError(path, "cannot be written");
    done += static_cast<size_t>(n);
  }
  if (fsync(file.descriptor()) != 0 && errno != EINVAL) // EINVAL: a device or pipe
    return systemError(path, "cannot be written");
  return success();
}

Status checkVersion(const plan::Plan &plan, const std::string &name) {
  if (plan.version() == kPlanVersion)
    return success();
  std::string versions = name + ": plan has version " + std::to_string(plan.version()) +
                         ", this program reads version " + std::to_string(kPlanVersion);
  std::string by = plan.provenance().compiler_version().empty()
                       ? ""
                       : " (written by zerocc " + plan.provenance().compiler_version() + ")";
  if (plan.version() > kPlanVersion)
    return Error(versions + by, "use a zero-run as new as the zerocc that wrote it");
  return Error(versions + by, "compile the model again");
}

} // namespace

std::string encodePlan(const plan::Plan &plan) {
  std::string payload = serialize(plan);
  return std::string(kMagic) + hashOf(payload) + payload;
}

Expected<plan::Plan> decodePlan(const std::string &bytes, const std::string &name) {
  std::string_view all(bytes);
  if (all.substr(0, 5) != kMagic.substr(0, 5))
    return Error(name + ": is not a zerocc plan",
                 "plans are written by: zerocc compile MODEL.onnx -o PLAN.zplan");
  if (all.size() < kHeaderBytes)
    return Error(name + ": plan is cut off after " + std::to_string(all.size()) + " bytes",
                 "compile the model again");
  if (all.substr(0, kMagic.size()) != kMagic)
    return Error(name + ": plan file has framing " + std::to_string(static_cast<unsigned char>(bytes[7])) +
                     ", this program reads framing " + std::to_string(static_cast<unsigned char>(kMagic[7])),
                 "use a zero-run as new as the zerocc that wrote it");
  std::string_view stated = all.substr(kMagic.size(), kHashBytes), payload = all.substr(kHeaderBytes);
  if (std::string actual = hashOf(payload); actual != stated)
    return Error(name + ": plan is damaged: its checksum is " + hexOf(stated) + ", its content has " +
                     hexOf(actual),
                 "copy it again or compile the model again");
  plan::Plan plan;
  if (payload.size() > static_cast<size_t>(kMaxPlanBytes) ||
      !plan.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return Error(name + ": plan is not a valid protobuf message", "compile the model again");
  ZEROCC_TRY(checkVersion(plan, name));
  return plan;
}

Expected<plan::Plan> loadPlan(const std::string &path) {
  ZEROCC_ASSIGN(std::string bytes, readAll(path));
  return decodePlan(bytes, path);
}

Status savePlan(const plan::Plan &plan, const std::string &path) {
  std::string beside = path + ".partial";
  if (Status written = writeAll(beside, encodePlan(plan)); !written) {
    unlink(beside.c_str());
    return written;
  }
  if (rename(beside.c_str(), path.c_str()) != 0) {
    Error error = systemError(path, "cannot be written");
    unlink(beside.c_str());
    return error;
  }
  return success();
}

std::string planFingerprint(const plan::Plan &plan) {
  plan::Plan structure = plan;
  structure.clear_defaults();
  structure.clear_provenance();
  return hexOf(hashOf(serialize(structure)));
}

} // namespace zerocc
