// Functions that fmt's headers do not define inline: compiled once here, instead of in every source that formats a text, where
// they take 4 s each, or 8 s with sanitizers. This source is compiled a second time for the layers with LibTorch, which brings
// its own headers of fmt, usually of another release and so in another namespace; if it is the same release, weak symbols avoid a
// conflict.
#define FMT_FUNC __attribute__((weak))
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
