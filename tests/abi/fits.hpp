// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a declaration of ours fits a vendor's, at compile time. A function fits when the vendor's
// prototype, with every foreign type replaced by what it is in the ABI (an enum by its integer, a
// pointer to a foreign struct by void*), is the type of our pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tutti::abi {

/// What a parameter is to the calling convention.
template <class T, class = void>
struct Abi {
  using Type = T;
};
template <class T>
struct Abi<T, std::enable_if_t<std::is_enum_v<T>>> {
  using Type = std::make_signed_t<std::underlying_type_t<T>>;
};
template <class T>
struct Abi<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, char> &&
                               !std::is_same_v<T, bool>>> {
  // unsigned long and unsigned long long are both 64 bits here.
  using Type =
      std::conditional_t<sizeof(T) == 8, std::int64_t,
                         std::conditional_t<sizeof(T) == 4, std::int32_t, std::make_signed_t<T>>>;
};
// Structures are compared by size and alignment where they are passed by value.
template <std::size_t size, std::size_t alignment>
struct Block {};
template <class T>
struct Abi<T, std::enable_if_t<std::is_class_v<T>>> {
  using Type = Block<sizeof(T), alignof(T)>;
};
// Pointers: to an integer, an enum or another pointer by what they point at; else just an address.
template <class T>
struct Abi<T*, void> {
  using Bare = std::remove_const_t<T>;
  static constexpr bool kIsValue =
      std::is_integral_v<Bare> || std::is_enum_v<Bare> || std::is_pointer_v<Bare>;
  template <class U, bool is_value>
  struct Pointee {
    using Type = void*;
  };
  template <class U>
  struct Pointee<U, true> {
    using Type = typename Abi<U>::Type*;
  };
  using Type = typename Pointee<Bare, kIsValue>::Type;
};

template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R(A...)> {
  using Type = typename Abi<R>::Type(typename Abi<std::remove_const_t<A>>::Type...);
};
template <class R, class... A>
struct Signature<R (*)(A...)> : Signature<R(A...)> {};
template <class R, class... A>
struct Signature<R (*const)(A...)> : Signature<R(A...)> {};

template <class Ours, class Theirs>
constexpr bool fits() {
  return std::is_same_v<typename Signature<Ours>::Type, typename Signature<Theirs>::Type>;
}

// The comparison itself: it must tell a wrong declaration from a right one.
enum Sample : unsigned { kSample };
static_assert(fits<int (*)(unsigned*), Sample (*)(int*)>());
static_assert(!fits<int (*)(unsigned*), Sample (*)(std::size_t*)>());
static_assert(!fits<int (*)(unsigned), int (*)(std::size_t)>());
static_assert(!fits<int (*)(unsigned, void*), int (*)(unsigned)>());

}  // namespace tutti::abi
