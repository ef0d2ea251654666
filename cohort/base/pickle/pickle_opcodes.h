/// The operations of pickle's stack machine that plain values use, by their names in Python's pickle.py.
#pragma once

namespace cohort::base::pickle_opcode {

constexpr char kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2', kProto = '\x80', kFrame = '\x95';
constexpr char kNone = 'N', kNewTrue = '\x88', kNewFalse = '\x89';
constexpr char kInt = 'I', kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong = 'L', kLong1 = '\x8a', kLong4 = '\x8b';
constexpr char kFloat = 'F', kBinFloat = 'G';
constexpr char kUnicode = 'V', kBinUnicode = 'X', kShortBinUnicode = '\x8c', kBinUnicode8 = '\x8d';
constexpr char kString = 'S', kBinString = 'T', kShortBinString = 'U';  // Python 2
constexpr char kBinBytes = 'B', kShortBinBytes = 'C', kBinBytes8 = '\x8e', kByteArray8 = '\x96';
constexpr char kEmptyList = ']', kAppend = 'a', kAppends = 'e', kList = 'l';
constexpr char kEmptyTuple = ')', kTuple = 't', kTuple1 = '\x85', kTuple2 = '\x86', kTuple3 = '\x87';
constexpr char kEmptyDict = '}', kDict = 'd', kSetItem = 's', kSetItems = 'u';
constexpr char kPut = 'p', kBinPut = 'q', kLongBinPut = 'r', kGet = 'g', kBinGet = 'h', kLongBinGet = 'j';
constexpr char kMemoize = '\x94';
constexpr char kGlobal = 'c', kStackGlobal = '\x93', kReduce = 'R', kBuild = 'b', kBinPersId = 'Q';
constexpr char kNewObj = '\x81', kNewObjEx = '\x92';

}  // namespace cohort::base::pickle_opcode
