#include "compiler/onnx/utf8_check.h"

#include "llvm/Support/ConvertUTF.h"

#include "google/protobuf/descriptor.h"

namespace zerocc {

bool isUtf8(llvm::StringRef text) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.begin());
  return llvm::isLegalUTF8String(&begin, reinterpret_cast<const llvm::UTF8 *>(text.end()));
}

Status checkUtf8(const google::protobuf::Message &message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection &reflection = *message.GetReflection();
  std::vector<const Field *> fields;
  reflection.ListFields(message, &fields);
  std::string scratch;
  for (const Field *field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      for (int i = 0; i < count; ++i)
        ZEROCC_TRY(checkUtf8(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                  : reflection.GetMessage(message, field)));
    } else if (field->type() == Field::TYPE_STRING && field->name() != "doc_string") {
      for (int i = 0; i < count; ++i) {
        const std::string &text = field->is_repeated()
                                      ? reflection.GetRepeatedStringReference(message, field, i, &scratch)
                                      : reflection.GetStringReference(message, field, &scratch);
        if (!isUtf8(text))
          return Error(field->containing_type()->name() + "." + field->name() + " \"" + text + "\" is not UTF-8",
                       "texts of ONNX files are UTF-8: rename it, or export the model again");
      }
    }
  }
  return success();
}

} // namespace zerocc
