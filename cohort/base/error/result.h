/// Result<T>: a value, or an Error that says what went wrong, where, why (a chain of causes) and what to do next.
///
///     Result<Config> load(const std::string& path) {
///       Result<std::string> text = read_file(path);
///       if (!text) return Error("cannot load the configuration").caused_by(text.error()).with_hint("give --config");
///       ...
///     }
///
/// The layers without LibTorch return it. The C++ API turns it into LibTorch's own exceptions in one place.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <variant>

namespace cohort::base {

class [[nodiscard]] Error {
 public:
  explicit Error(std::string message, std::source_location where = std::source_location::current())
      : message_(std::move(message)), where_(where) {}

  /// Adds the reason below this error. A second call replaces the first.
  Error&& caused_by(Error cause) && {
    cause_ = std::make_shared<const Error>(std::move(cause));
    return std::move(*this);
  }
  /// Adds the next step for the reader.
  Error&& with_hint(std::string hint) && {
    hint_ = std::move(hint);
    return std::move(*this);
  }

  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  /// Null at the end of the chain.
  const Error* cause() const { return cause_.get(); }
  const std::source_location& where() const { return where_; }

  /// Returns the message, then one indented line per cause and per hint, without a newline at the end:
  /// ```text
  /// cannot start worker 1
  ///   caused by: cannot open "/x/stdout.log": No such file or directory (ENOENT)
  ///   hint: create the folder first
  /// ```
  std::string describe() const {
    std::string text = message_;
    for (const Error* cause = cause_.get(); cause; cause = cause->cause()) text += "\n  caused by: " + cause->message_;
    for (const Error* error = this; error; error = error->cause()) {
      if (!error->hint_.empty()) text += "\n  hint: " + error->hint_;
    }
    return text;
  }

 private:
  std::string message_;
  std::string hint_;
  std::shared_ptr<const Error> cause_;
  std::source_location where_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  /// Requires ok(); std::bad_variant_access otherwise.
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  /// Requires !ok(); std::bad_variant_access otherwise.
  const Error& error() const& { return std::get<Error>(state_); }
  Error&& error() && { return std::get<Error>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value: `return {};`.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::make_shared<const Error>(std::move(error))) {}

  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  /// Requires !ok().
  const Error& error() const { return *error_; }

 private:
  std::shared_ptr<const Error> error_;
};

}  // namespace cohort::base
