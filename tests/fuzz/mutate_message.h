#pragma once

#include <google/protobuf/message.h>

namespace zerocc {

/// Changes a message at one to four random places: numbers become extreme or others' neighbours, texts become
/// other texts of the message (names meet names), elements are dropped, repeated, swapped, or taken from
/// elsewhere in it.
void mutateMessage(google::protobuf::Message &message, unsigned seed);

} // namespace zerocc
