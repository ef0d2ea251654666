#include "cohort/snapshot/message.h"

#include <algorithm>
#include <cstring>

namespace cohort::snapshot {
namespace {

bool is_id_character(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '/'; }

Reply reply_with(uint32_t is_ok, std::string_view text) {
  Reply reply{.is_ok = is_ok};
  reply.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof(reply.text)));
  std::copy_n(text.begin(), reply.text_bytes, reply.text);
  return reply;
}

}  // namespace

bool is_id(std::string_view text) {
  return !text.empty() && text.size() < sizeof(Request::id) && std::all_of(text.begin(), text.end(), is_id_character);
}

void set_id(char (&to)[40], std::string_view id) {
  const size_t size = std::min(id.size(), sizeof(to) - 1);
  std::memset(to, 0, sizeof(to));
  std::memcpy(to, id.data(), size);
}

std::string id_in(const char (&from)[40]) {
  const std::string id(from, strnlen(from, sizeof(from)));
  return is_id(id) ? id : "";
}

Reply ok_reply(std::string_view text) { return reply_with(1, text); }

Reply failed_reply(std::string_view text) { return reply_with(0, text); }

std::string text_in(const Reply& reply) { return {reply.text, std::min<size_t>(reply.text_bytes, sizeof(reply.text))}; }

base::Error described_error(const std::string& text) {
  const size_t hint = text.find("\n  hint: ");
  if (hint == std::string::npos) return base::Error(text);
  return base::Error(text.substr(0, hint)).with_hint(text.substr(hint + 9));
}

}  // namespace cohort::snapshot
