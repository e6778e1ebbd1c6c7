// <type_traits>: the part that device code uses, mostly on compiler built-ins.
#pragma once

namespace std {

template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <bool c, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool c, class T = void> using enable_if_t = typename enable_if<c, T>::type;

template <bool c, class T, class F> struct conditional { typedef T type; };
template <class T, class F> struct conditional<false, T, F> { typedef F type; };
template <bool c, class T, class F> using conditional_t = typename conditional<c, T, F>::type;

template <class...> using void_t = void;
template <class T> struct type_identity { typedef T type; };
template <class T> using type_identity_t = typename type_identity<T>::type;

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;

template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv : remove_const<typename remove_volatile<T>::type> {};
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T &> { typedef T type; };
template <class T> struct remove_reference<T &&> { typedef T type; };
template <class T> struct remove_cvref : remove_cv<typename remove_reference<T>::type> {};
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T *> { typedef T type; };
template <class T> struct remove_pointer<T *const> { typedef T type; };
template <class T> struct remove_extent { typedef T type; };
template <class T> struct remove_extent<T[]> { typedef T type; };
template <class T, size_t n> struct remove_extent<T[n]> { typedef T type; };
template <class T> struct remove_all_extents { typedef T type; };
template <class T> struct remove_all_extents<T[]> : remove_all_extents<T> {};
template <class T, size_t n> struct remove_all_extents<T[n]> : remove_all_extents<T> {};
template <class T> struct add_const { typedef const T type; };
template <class T> struct add_volatile { typedef volatile T type; };
template <class T> struct add_cv { typedef const volatile T type; };
template <class T> struct add_pointer { typedef typename remove_reference<T>::type *type; };
template <class T> struct add_lvalue_reference { typedef T &type; };
template <class T> struct add_rvalue_reference { typedef T &&type; };
template <> struct add_lvalue_reference<void> { typedef void type; };
template <> struct add_rvalue_reference<void> { typedef void type; };
template <class T> struct decay { typedef __decay(T) type; };
template <class T> struct make_unsigned { typedef __make_unsigned(T) type; };
template <class T> struct make_signed { typedef __make_signed(T) type; };
template <class T> struct underlying_type { typedef __underlying_type(T) type; };

template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_extent_t = typename remove_extent<T>::type;
template <class T> using remove_all_extents_t = typename remove_all_extents<T>::type;
template <class T> using add_const_t = typename add_const<T>::type;
template <class T> using add_volatile_t = typename add_volatile<T>::type;
template <class T> using add_cv_t = typename add_cv<T>::type;
template <class T> using add_pointer_t = typename add_pointer<T>::type;
template <class T> using add_lvalue_reference_t = typename add_lvalue_reference<T>::type;
template <class T> using add_rvalue_reference_t = typename add_rvalue_reference<T>::type;
template <class T> using decay_t = typename decay<T>::type;
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> using make_signed_t = typename make_signed<T>::type;
template <class T> using underlying_type_t = typename underlying_type<T>::type;

// clang's __is_floating_point counts _Float16, which the standard's trait (and nvcc's) does not.
template <class T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};
template <> struct is_floating_point<long double> : true_type {};
template <class T> struct is_floating_point<const T> : is_floating_point<T> {};
template <class T> struct is_floating_point<volatile T> : is_floating_point<T> {};
template <class T> struct is_floating_point<const volatile T> : is_floating_point<T> {};
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;

template <class T> struct is_arithmetic : bool_constant<__is_integral(T) || is_floating_point<T>::value> {};
template <class T> inline constexpr bool is_arithmetic_v = is_arithmetic<T>::value;

#define KG_TRAIT(name)                                                                                                 \
  template <class T> struct name : bool_constant<__##name(T)> {};                                                      \
  template <class T> inline constexpr bool name##_v = __##name(T);
KG_TRAIT(is_integral)
KG_TRAIT(is_signed)
KG_TRAIT(is_unsigned)
KG_TRAIT(is_void)
KG_TRAIT(is_pointer)
KG_TRAIT(is_reference)
KG_TRAIT(is_lvalue_reference)
KG_TRAIT(is_rvalue_reference)
KG_TRAIT(is_array)
KG_TRAIT(is_function)
KG_TRAIT(is_enum)
KG_TRAIT(is_class)
KG_TRAIT(is_union)
KG_TRAIT(is_const)
KG_TRAIT(is_volatile)
KG_TRAIT(is_fundamental)
KG_TRAIT(is_scalar)
KG_TRAIT(is_object)
KG_TRAIT(is_compound)
KG_TRAIT(is_empty)
KG_TRAIT(is_trivial)
KG_TRAIT(is_trivially_copyable)
KG_TRAIT(is_standard_layout)
KG_TRAIT(is_pod)
KG_TRAIT(is_aggregate)
KG_TRAIT(is_abstract)
KG_TRAIT(is_final)
KG_TRAIT(is_polymorphic)
KG_TRAIT(is_member_pointer)
KG_TRAIT(is_destructible)
KG_TRAIT(is_trivially_destructible)
KG_TRAIT(is_nothrow_destructible)
KG_TRAIT(has_virtual_destructor)
KG_TRAIT(is_literal_type)
#undef KG_TRAIT

template <class A, class B> struct is_base_of : bool_constant<__is_base_of(A, B)> {};
template <class A, class B> inline constexpr bool is_base_of_v = __is_base_of(A, B);
template <class A, class B> struct is_convertible : bool_constant<__is_convertible(A, B)> {};
template <class A, class B> inline constexpr bool is_convertible_v = __is_convertible(A, B);

// How objects are made and assigned: plainly, trivially, without exceptions.
#define KG_MADE(how, name, ...)                                                                                        \
  template <class T> struct how##name : bool_constant<__##how##constructible(T __VA_OPT__(, ) __VA_ARGS__)> {};        \
  template <class T> inline constexpr bool how##name##_v = how##name<T>::value;
#define KG_ASSIGNED(how, name, from)                                                                                   \
  template <class T>                                                                                                   \
  struct how##name : bool_constant<__##how##assignable(add_lvalue_reference_t<T>, from<T>)> {};                        \
  template <class T> inline constexpr bool how##name##_v = how##name<T>::value;
#define KG_OBJECTS(how)                                                                                                \
  template <class T, class... A> struct how##constructible : bool_constant<__##how##constructible(T, A...)> {};        \
  template <class T, class... A> inline constexpr bool how##constructible_v = __##how##constructible(T, A...);         \
  template <class A, class B> struct how##assignable : bool_constant<__##how##assignable(A, B)> {};                    \
  template <class A, class B> inline constexpr bool how##assignable_v = __##how##assignable(A, B);                     \
  KG_MADE(how, default_constructible)                                                                                  \
  KG_MADE(how, copy_constructible, add_lvalue_reference_t<const T>)                                                    \
  KG_MADE(how, move_constructible, add_rvalue_reference_t<T>)                                                          \
  KG_ASSIGNED(how, copy_assignable, __kg_const_lvalue_reference_t)                                                     \
  KG_ASSIGNED(how, move_assignable, add_rvalue_reference_t)
template <class T> using __kg_const_lvalue_reference_t = add_lvalue_reference_t<const T>;
KG_OBJECTS(is_)
KG_OBJECTS(is_trivially_)
KG_OBJECTS(is_nothrow_)
#undef KG_OBJECTS
#undef KG_ASSIGNED
#undef KG_MADE
template <class T> struct is_null_pointer : is_same<remove_cv_t<T>, nullptr_t> {};
template <class T> inline constexpr bool is_null_pointer_v = is_null_pointer<T>::value;
template <class T> struct alignment_of : integral_constant<size_t, alignof(T)> {};
template <class T> inline constexpr size_t alignment_of_v = alignof(T);
template <class T> struct rank : integral_constant<size_t, 0> {};
template <class T> struct rank<T[]> : integral_constant<size_t, rank<T>::value + 1> {};
template <class T, size_t n> struct rank<T[n]> : integral_constant<size_t, rank<T>::value + 1> {};
template <class T> inline constexpr size_t rank_v = rank<T>::value;
template <class T, unsigned n = 0> struct extent : integral_constant<size_t, __array_extent(T, n)> {};
template <class T, unsigned n = 0> inline constexpr size_t extent_v = extent<T, n>::value;

template <class...> struct conjunction : true_type {};
template <class A> struct conjunction<A> : A {};
template <class A, class... R> struct conjunction<A, R...> : conditional_t<bool(A::value), conjunction<R...>, A> {};
template <class...> struct disjunction : false_type {};
template <class A> struct disjunction<A> : A {};
template <class A, class... R> struct disjunction<A, R...> : conditional_t<bool(A::value), A, disjunction<R...>> {};
template <class A> struct negation : bool_constant<!bool(A::value)> {};
template <class... A> inline constexpr bool conjunction_v = conjunction<A...>::value;
template <class... A> inline constexpr bool disjunction_v = disjunction<A...>::value;
template <class A> inline constexpr bool negation_v = negation<A>::value;

template <class T> add_rvalue_reference_t<T> declval() noexcept;

template <class... T> struct common_type {};
template <class T> struct common_type<T> { typedef decay_t<T> type; };
template <class A, class B> struct common_type<A, B> {
  typedef decay_t<decltype(false ? declval<A>() : declval<B>())> type;
};
template <class A, class B, class... R>
struct common_type<A, B, R...> : common_type<typename common_type<A, B>::type, R...> {};
template <class... T> using common_type_t = typename common_type<T...>::type;

template <class F, class... A> struct invoke_result { typedef decltype(declval<F>()(declval<A>()...)) type; };
template <class F, class... A> using invoke_result_t = typename invoke_result<F, A...>::type;
template <class, class F, class... A> struct __kg_invocable : false_type {};
template <class F, class... A>
struct __kg_invocable<void_t<decltype(declval<F>()(declval<A>()...))>, F, A...> : true_type {};
template <class F, class... A> struct is_invocable : __kg_invocable<void, F, A...> {};
template <class F, class... A> inline constexpr bool is_invocable_v = is_invocable<F, A...>::value;
template <class F> struct result_of;
template <class F, class... A> struct result_of<F(A...)> : invoke_result<F, A...> {};
template <class F> using result_of_t = typename result_of<F>::type;

template <size_t size, size_t align = size> struct aligned_storage {
  struct type {
    alignas(align) unsigned char data[size];
  };
};
template <size_t size, size_t align = size> using aligned_storage_t = typename aligned_storage<size, align>::type;

}  // namespace std

namespace __kg {

template <class T> inline constexpr bool integral = __is_integral(T);

// C++'s rule for math functions of mixed arguments: an integer counts as double.
template <class T> struct as_float : std::enable_if<__is_integral(T), double> {};
template <> struct as_float<float> { typedef float type; };
template <> struct as_float<double> { typedef double type; };
template <> struct as_float<long double> { typedef double type; };
template <class T> using as_float_t = typename as_float<T>::type;
template <class T, class U> using promoted = decltype(as_float_t<T>() + as_float_t<U>());
template <class T> using integer_only = std::enable_if_t<__is_integral(T), double>;

}  // namespace __kg
