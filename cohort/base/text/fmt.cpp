// What fmt's headers do not define inline, so that it is compiled once and not in every source that builds a text: there it takes
// 4 s each, 8 s with sanitizers. This source is compiled a second time for the layers with LibTorch, which brings its own
// headers of fmt, usually of another release and so in another namespace; where it is the same, weak symbols get along.
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
