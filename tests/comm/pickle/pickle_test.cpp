#include "cohort/comm/pickle/pickle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/require.h"

namespace cohort::comm {
namespace {

using c10::IValue;
using test::error_of;

// {"a": [1, -2, 300, 70000, 2**40], "b": (1.5, None, True), "c": b"x\xff", "d": "\u00e9"} as Python writes it, protocols 0 to 5.
constexpr const char* kFromPython[] = {
    "286470300a56610a70310a286c70320a49310a61492d320a61493330300a614937303030300a614c31303939353131363237"
    "3737364c0a617356620a70330a2846312e350a4e4930310a7470340a7356630a70350a635f636f646563730a656e636f6465"
    "0a70360a285678ff0a70370a566c6174696e310a70380a7470390a527031300a7356640a7031310a56e90a7031320a732e",
    "7d71002858010000006171015d7102284b014afeffffff4d2c014a701101004c313039393531313632373737364c0a655801"
    "00000062710328473ff80000000000004e4930310a7471045801000000637105635f636f646563730a656e636f64650a7106"
    "28580300000078c3bf710758060000006c6174696e31710874710952710a580100000064710b5802000000c3a9710c752e",
    "80027d71002858010000006171015d7102284b014afeffffff4d2c014a701101008a06000000000001655801000000627103"
    "473ff80000000000004e888771045801000000637105635f636f646563730a656e636f64650a7106580300000078c3bf7107"
    "58060000006c6174696e31710886710952710a580100000064710b5802000000c3a9710c752e",
    "80037d71002858010000006171015d7102284b014afeffffff4d2c014a701101008a06000000000001655801000000627103"
    "473ff80000000000004e888771045801000000637105430278ff710658010000006471075802000000c3a97108752e",
    "80049547000000000000007d94288c0161945d94284b014afeffffff4d2c014a701101008a06000000000001658c01629447"
    "3ff80000000000004e8887948c016394430278ff948c0164948c02c3a994752e",
    "80059547000000000000007d94288c0161945d94284b014afeffffff4d2c014a701101008a06000000000001658c01629447"
    "3ff80000000000004e8887948c016394430278ff948c0164948c02c3a994752e",
};

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string literal(const char* text, size_t size) { return {text, size}; }
#define BYTES(text) literal(text, sizeof(text) - 1)

IValue round_trip(const IValue& value) { return unpickle(pickle(value)); }

TEST(Pickle, ReadsEveryProtocolOfPython) {
  for (const auto* hex : kFromPython) {
    const auto dict = unpickle(from_hex(hex)).toGenericDict();
    ASSERT_EQ(dict.size(), 4u);
    EXPECT_EQ(dict.at("a").toIntVector(), (std::vector<int64_t>{1, -2, 300, 70000, int64_t{1} << 40}));
    const auto& pair = dict.at("b").toTupleRef().elements();
    EXPECT_EQ(pair[0].toDouble(), 1.5);
    EXPECT_TRUE(pair[1].isNone());
    EXPECT_TRUE(pair[2].toBool());
    EXPECT_EQ(bytes_of(dict.at("c")), "x\xff");
    EXPECT_EQ(dict.at("d").toStringRef(), "\u00e9");
    EXPECT_EQ(dict.begin()->key().toStringRef(), "a") << "order";
  }
}

TEST(Pickle, ValuesReturnEqualWithTheirTypes) {
  for (const auto& value :
       {IValue(), IValue(true), IValue(0), IValue(-1), IValue(255), IValue(65536), IValue(INT64_MIN), IValue(INT64_MAX),
        IValue(0.1), IValue(c10::complex<double>(1, -2)), IValue(""), IValue(std::string(300, 'x')),
        IValue(std::vector<int64_t>{1, 2}), IValue(std::vector<double>{1, 2}), IValue(c10::List<bool>({true})),
        IValue(c10::List<std::string>({"a", "b"})), IValue(c10::ivalue::Tuple::create({IValue(1), IValue("x")})),
        IValue(c10::ivalue::Tuple::create(std::vector<IValue>{}))}) {
    EXPECT_EQ(round_trip(value), value) << value;
  }
  c10::Dict<std::string, int64_t> dict;
  dict.insert("z", 1);
  dict.insert("a", 2);
  EXPECT_EQ(round_trip(dict), IValue(dict));
  EXPECT_EQ(bytes_of(round_trip(bytes_value(BYTES("\0\xff")))), BYTES("\0\xff"));
  EXPECT_EQ(bytes_of(unpickle(pickle_bytes("x"))), "x");
}

TEST(Pickle, TensorsAreCopiesOfTheirOwn) {
  const auto base = at::arange(12, at::kFloat).view({3, 4});
  for (const auto& tensor : {base, base.t(), base.slice(1, 1, 3), at::zeros({0, 2}), at::full({}, 7, at::kBFloat16)}) {
    const auto back = round_trip(tensor).toTensor();
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(at::equal(back, tensor));
    EXPECT_FALSE(back.requires_grad());
    EXPECT_FALSE(back.is_view());
  }
  EXPECT_TRUE(round_trip(at::ones({2}).set_requires_grad(true)).toTensor().requires_grad());
  const auto list = round_trip(std::vector<at::Tensor>{base, base}).toTensorVector();
  EXPECT_TRUE(at::equal(list[1], base));
}

TEST(Pickle, SharedListsStayShared) {
  // inner = []; [inner, inner]
  const auto pair = unpickle(BYTES("\x80\x04]\x94(]\x94h\x01"
                                   "e."))
                        .toList();
  EXPECT_TRUE(pair.get(0).is(pair.get(1)));
}

TEST(Pickle, RefusedValuesMessage) {
  EXPECT_EQ(error_of([] { pickle(std::string("\xff")); }),
            "[cohort] cannot pickle a string that is not UTF-8 as a Python str; use bytes_value");
  EXPECT_EQ(error_of([] { pickle(at::Device("cpu")); }),
            "[cohort] cannot pickle a value of type Device; possible are None, bool, int, float, complex, str, bytes, "
            "list, tuple, "
            "dict and tensors");
  EXPECT_EQ(error_of([] { pickle(at::Tensor()); }), "[cohort] cannot pickle an undefined tensor");
  EXPECT_EQ(error_of([] { pickle(at::eye(2).to_sparse()); }), "[cohort] cannot pickle a sparse or quantized tensor");
  EXPECT_EQ(error_of([] { pickle(at::empty({1}, at::kFloat8_e4m3fn)); }),
            "[cohort] cannot pickle a tensor of dtype Float8_e4m3fn; send it with broadcast or send");
  IValue deep(1);
  for (int i = 0; i < kMaxPickleDepth + 1; ++i) deep = c10::ivalue::Tuple::create({deep});
  EXPECT_EQ(error_of([&] { pickle(deep); }), "[cohort] cannot pickle a value nested deeper than 200");
  EXPECT_EQ(error_of([] { bytes_of(IValue("x")); }),
            "[cohort] expected bytes made by bytes_value, got a value of type String");
}

struct Malformed {
  std::string data;
  std::string message;
};

TEST(Unpickle, MalformedDataMessage) {
  const Malformed cases[] = {
      {"", "it needs 1 more bytes and has 0 (byte 0 of 0)"},
      {"N", "it needs 1 more bytes and has 0 (byte 1 of 1)"},
      {".", "it ends with other than one value (byte 0 of 1)"},
      {"(N.", "it ends with other than one value (byte 2 of 3)"},
      {"a.", "an operation finds too few values (byte 0 of 2)"},
      {"NNa.", "items are appended to something that is not a list (byte 2 of 4)"},
      {"e.", "an operation finds no mark (byte 0 of 2)"},
      {"}(Nu.", "a dict has a key without a value (byte 3 of 5)"},
      {"}]Ns.", "a dict has a key of type list; str, int, float, complex and bool are possible (byte 3 of 5)"},
      {"I12x\n.", "\"12x\" is not an int of 64 bits (byte 0 of 6)"},
      {"F1.5y\n.", "\"1.5y\" is not a float (byte 0 of 7)"},
      {"V\\u12\n.", "a str has a malformed escape (byte 0 of 7)"},
      {"Vabc", "a line has no end (byte 0 of 4)"},
      {BYTES("B\xff\xff\xff\x7fx."), "it needs 2147483647 more bytes and has 2 (byte 0 of 7)"},
      {BYTES("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."),
       "it needs 18446744073709551615 more bytes and has 1 (byte 0 of 10)"},
      {BYTES("\x80\x09N."), "it is of protocol 9; 0 to 5 are known (byte 0 of 4)"},
      {BYTES("\x80\x04\x95\x09\0\0\0\0\0\0\0N."), "a frame of 9 bytes has 2 (byte 2 of 13)"},
      {BYTES("h\x05."), "it refers to value 5, which it did not store (byte 0 of 3)"},
      {BYTES("]\x94h\0a."), "a list or dict contains itself (byte 4 of 6)"},
      {"NNR.", "something that is not a function is called (byte 2 of 4)"},
      {"cos\nsystem\n.",
       "it refers to os.system; only None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors can be "
       "exchanged with C++ ranks"},
      {"c_codecs\nencode\n.", "a Python function or storage stands as a value (byte 16 of 17)"},
      {"c_codecs\nencode\n(tR.", "_codecs.encode is called with other arguments than Python writes"},
      {"ctorch.storage\n_load_from_bytes\n(C\001xtR.", "a tensor: its memory is not in torch.save's older format"},
      {BYTES("\x7f."), "operation 0x7f is not an operation of pickle (byte 0 of 2)"},
      {"NNb.", "operation 0x62 is an object of a class (byte 2 of 4)"},
      {BYTES("\x81."), "operation 0x81 is an object of a class (byte 0 of 2)"},
      {"P7\n.", "operation 0x50 is a persistent id (byte 0 of 4)"},
  };
  for (const auto& [data, message] : cases) {
    const auto prefix =
        message.rfind("a tensor: ", 0) == 0 ? "[cohort] cannot unpickle " : "[cohort] cannot unpickle: ";
    EXPECT_EQ(error_of([&, &bytes = data] { unpickle(bytes); }), prefix + message);
  }
}

// What at::Tensor itself refuses is a malformed pickle, too.
TEST(Unpickle, TensorsThatCannotBeMessage) {
  const auto with = [](const at::Tensor& tensor, const std::string& from, const std::string& to) {
    auto data = pickle(tensor);
    data.replace(data.rfind(from), from.size(), to);
    return data;
  };
  const auto ints = at::arange(3, at::kLong);
  // (storage, 0, (3,), (1,), False, OrderedDict()): with a gradient; with 4 elements.
  const auto with_gradient = with(ints, "\x89", "\x88");
  EXPECT_EQ(error_of([&] { unpickle(with_gradient); }),
            "[cohort] cannot unpickle a tensor: one of dtype Long has no gradient");
  EXPECT_THROW(unpickle(with_gradient), c10::ValueError);
  const auto too_long = with(ints, BYTES("K\x03"), BYTES("K\x04"));
  EXPECT_THAT(error_of([&] { unpickle(too_long); }), testing::HasSubstr("out of bounds for storage of size 24"));
  EXPECT_THROW(unpickle(too_long), c10::ValueError);
}

// NaN equals no key, so each would come in anew; all have one hash, so the table would double for each.
TEST(Unpickle, KeysThatAreNoNumberMessage) {
  const auto nan = BYTES("G\x7f\xf8\0\0\0\0\0\0N");
  std::string data = "}(";
  for (int i = 0; i < 64; ++i) data += nan;
  EXPECT_EQ(error_of([&] { unpickle(data + "u."); }),
            "[cohort] cannot unpickle: a dict has NaN as a key (byte 642 of 644)");
  EXPECT_EQ(error_of([] { unpickle(BYTES("}c__builtin__\ncomplex\n(G\x7f\xf8\0\0\0\0\0\0F1\ntRNs.")); }),
            "[cohort] cannot unpickle: a dict has NaN as a key (byte 38 of 40)");
}

// Whatever the bytes are, the answer is a value or a c10::ValueError, soon and with bounded memory.
void survive(const std::string& data) {
  try {
    unpickle(data);
  } catch (const c10::ValueError&) {
  }
}

TEST(Unpickle, SurvivesTruncatedAndChangedData) {
  std::vector<std::string> seeds;
  for (const auto* hex : kFromPython) seeds.push_back(from_hex(hex));
  seeds.push_back(pickle(at::arange(6).view({2, 3}).t()));
  seeds.push_back(pickle(c10::ivalue::Tuple::create({IValue(at::ones({2}, at::kHalf)), IValue("x")})));
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  for (const auto& seed : seeds) {
    for (size_t size = 0; size < seed.size(); ++size) EXPECT_ANY_THROW(unpickle(seed.substr(0, size)));
    for (int round = 0; round < 5000; ++round) {
      auto data = seed;
      for (size_t change = 0; change <= below(4); ++change) {
        const auto at = below(data.size());
        const auto kind = below(4);
        if (kind == 0) data[at] = static_cast<char>(random());
        if (kind == 1) data[at] = static_cast<char>(data[at] ^ (1 << below(8)));
        if (kind == 2) data.erase(at, 1 + below(8));
        if (kind == 3) data.insert(at, data.substr(below(data.size()), 1 + below(16)));
        if (data.empty()) data.push_back('.');
      }
      survive(data);
    }
  }
}

}  // namespace
}  // namespace cohort::comm
