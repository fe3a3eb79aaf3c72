#include "tests/fuzz/mutate_message.h"

#include <google/protobuf/descriptor.h>

#include <random>
#include <string>
#include <vector>

namespace zerocc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

/// All messages below one, and all its texts.
struct Survey {
  std::vector<Message *> messages;
  std::vector<std::string> texts;

  void visit(Message *message) {
    messages.push_back(message);
    const Reflection *reflection = message->GetReflection();
    std::vector<const FieldDescriptor *> fields;
    reflection->ListFields(*message, &fields);
    for (const FieldDescriptor *field : fields) {
      const int count = field->is_repeated() ? reflection->FieldSize(*message, field) : 1;
      for (int i = 0; i < count; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map())
          visit(field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, i)
                                     : reflection->MutableMessage(message, field));
        else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && texts.size() < 4096)
          texts.push_back(field->is_repeated() ? reflection->GetRepeatedString(*message, field, i)
                                               : reflection->GetString(*message, field));
      }
    }
  }
};

int64_t number(Random &random) {
  constexpr int64_t numbers[] = {0,
                                 1,
                                 -1,
                                 2,
                                 3,
                                 4,
                                 7,
                                 8,
                                 16,
                                 17,
                                 31,
                                 64,
                                 127,
                                 128,
                                 255,
                                 1 << 16,
                                 1 << 20,
                                 int64_t(1) << 31,
                                 int64_t(1) << 32,
                                 int64_t(1) << 62,
                                 std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min()};
  return numbers[random() % std::size(numbers)];
}

std::string text(const Survey &survey, Random &random, const std::string &old) {
  if (!survey.texts.empty() && random() % 3 != 0)
    return survey.texts[random() % survey.texts.size()];
  std::string out = old;
  if (out.empty() || random() % 3 == 0)
    return out + static_cast<char>(random() % 256);
  out[random() % out.size()] = static_cast<char>(random());
  if (random() % 4 == 0)
    out.resize(out.size() / 2);
  return out;
}

void setScalar(Message *message, const FieldDescriptor *field, int index, const Survey &survey,
               Random &random) {
  const Reflection *r = message->GetReflection();
  const bool repeated = field->is_repeated();
  const int64_t value = random() % 2 ? number(random) : static_cast<int64_t>(random() % 32);
#define ZEROCC_SET(kind, type)                                                                               \
  repeated ? r->SetRepeated##kind(message, field, index, static_cast<type>(value))                           \
           : r->Set##kind(message, field, static_cast<type>(value))
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    ZEROCC_SET(Int32, int32_t);
    break;
  case FieldDescriptor::CPPTYPE_INT64:
    ZEROCC_SET(Int64, int64_t);
    break;
  case FieldDescriptor::CPPTYPE_UINT32:
    ZEROCC_SET(UInt32, uint32_t);
    break;
  case FieldDescriptor::CPPTYPE_UINT64:
    ZEROCC_SET(UInt64, uint64_t);
    break;
  case FieldDescriptor::CPPTYPE_FLOAT:
    ZEROCC_SET(Float, float);
    break;
  case FieldDescriptor::CPPTYPE_DOUBLE:
    ZEROCC_SET(Double, double);
    break;
  case FieldDescriptor::CPPTYPE_BOOL:
    ZEROCC_SET(Bool, bool);
    break;
  case FieldDescriptor::CPPTYPE_ENUM: {
    const auto *type = field->enum_type();
    const auto *chosen = type->value(static_cast<int>(random() % type->value_count()));
    repeated ? r->SetRepeatedEnum(message, field, index, chosen) : r->SetEnum(message, field, chosen);
    break;
  }
  case FieldDescriptor::CPPTYPE_STRING: {
    const std::string old =
        repeated ? r->GetRepeatedString(*message, field, index) : r->GetString(*message, field);
    const std::string made = text(survey, random, old);
    repeated ? r->SetRepeatedString(message, field, index, made) : r->SetString(message, field, made);
    break;
  }
  case FieldDescriptor::CPPTYPE_MESSAGE:
    break;
  }
#undef ZEROCC_SET
}

void addElement(Message *message, const FieldDescriptor *field, const Survey &survey, Random &random) {
  const Reflection *r = message->GetReflection();
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return r->AddInt32(message, field, static_cast<int32_t>(number(random)));
  case FieldDescriptor::CPPTYPE_INT64:
    return r->AddInt64(message, field, number(random));
  case FieldDescriptor::CPPTYPE_UINT32:
    return r->AddUInt32(message, field, static_cast<uint32_t>(number(random)));
  case FieldDescriptor::CPPTYPE_UINT64:
    return r->AddUInt64(message, field, static_cast<uint64_t>(number(random)));
  case FieldDescriptor::CPPTYPE_FLOAT:
    return r->AddFloat(message, field, static_cast<float>(number(random)));
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return r->AddDouble(message, field, static_cast<double>(number(random)));
  case FieldDescriptor::CPPTYPE_BOOL:
    return r->AddBool(message, field, random() % 2);
  case FieldDescriptor::CPPTYPE_STRING:
    return r->AddString(message, field, text(survey, random, ""));
  case FieldDescriptor::CPPTYPE_MESSAGE: {
    std::vector<const Message *> alike; // one of its kind from anywhere
    for (const Message *candidate : survey.messages)
      if (candidate->GetDescriptor() == field->message_type() && candidate->ByteSizeLong() < 4096)
        alike.push_back(candidate);
    const Message *from = alike.empty() ? nullptr : alike[random() % alike.size()];
    std::string bytes = from ? from->SerializeAsString() : "";
    r->AddMessage(message, field)->ParseFromString(bytes);
    return;
  }
  default:
    return;
  }
}

void changeOnce(Message &root, Random &random) {
  Survey survey;
  survey.visit(&root);
  Message *message = survey.messages[random() % survey.messages.size()];
  const auto *descriptor = message->GetDescriptor();
  if (descriptor->field_count() == 0)
    return;
  const Reflection *r = message->GetReflection();
  std::vector<const FieldDescriptor *> present;
  r->ListFields(*message, &present);
  const FieldDescriptor *field =
      !present.empty() && random() % 4 != 0
          ? present[random() % present.size()]
          : descriptor->field(static_cast<int>(random() % descriptor->field_count()));
  if (field->is_map())
    return;
  const bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!field->is_repeated()) {
    if (random() % 8 == 0)
      r->ClearField(message, field);
    else if (!isMessage)
      setScalar(message, field, 0, survey, random);
    else
      r->MutableMessage(message, field);
    return;
  }
  const int count = r->FieldSize(*message, field);
  switch (count == 0 ? 3 : random() % 4) {
  case 0:
    if (!isMessage)
      setScalar(message, field, static_cast<int>(random() % count), survey, random);
    break;
  case 1:
    r->SwapElements(message, field, static_cast<int>(random() % count), static_cast<int>(random() % count));
    break;
  case 2:
    r->SwapElements(message, field, static_cast<int>(random() % count), count - 1);
    r->RemoveLast(message, field);
    break;
  default:
    if (count < 64)
      addElement(message, field, survey, random);
  }
}

} // namespace

void mutateMessage(Message &message, unsigned seed) {
  Random random(seed + 1);
  for (unsigned i = 0, changes = 1 + random() % 4; i < changes; ++i)
    changeOnce(message, random);
}

} // namespace zerocc
