// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The scattered copy: the kernel's own code with the lanes of a warp one after the other, and
// batches over the tables (on a real GPU with TUTTI_TEST_REAL_CUDA=1).
#include "device/scatter_copy.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "device/kernels/images.hpp"
#include "device/kernels/scatter.hpp"
#include "tables.hpp"

namespace tutti::device::test {
namespace {

using kernels::Byte;
using kernels::kScatterThreads;
using kernels::kUnitBytes;
using kernels::ScatterArguments;
using kernels::ScatterCut;
using kernels::ScatterLane;
using kernels::ScatterShare;
using kernels::Unit;
using kernels::Wide;
using kernels::Word;

/// Pieces as places in two buffers, what is in the buffers, and what shall be.
class Batch {
 public:
  /// Behind all pieces so far, `source` and `destination` bytes after a place of 16.
  void add(Word source, Word destination, Bytes bytes) {
    places_.push_back({source_bytes_ + source, destination_bytes_ + destination, bytes});
    source_bytes_ += (source + bytes + kGuardBytes) / kUnitBytes * kUnitBytes;
    destination_bytes_ += (destination + bytes + kGuardBytes) / kUnitBytes * kUnitBytes;
  }
  void add_every_alignment(const std::vector<Bytes>& lengths) {
    for (Word source = 0; source < kUnitBytes; ++source) {
      for (Word destination = 0; destination < kUnitBytes; ++destination) {
        for (const Bytes bytes : lengths) {
          add(source, destination, bytes);
        }
      }
    }
  }
  void add_random(std::size_t count, Bytes bytes_most, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < count; ++i) {
      add(random() % kUnitBytes, random() % kUnitBytes, random() % (bytes_most + 1));
    }
  }
  void shuffle(unsigned seed) {
    std::mt19937 random(seed);
    std::shuffle(places_.begin(), places_.end(), random);
  }

  std::size_t count() const { return places_.size(); }
  Bytes source_bytes() const { return source_bytes_ + kGuardBytes; }
  Bytes destination_bytes() const { return destination_bytes_ + kGuardBytes; }
  std::vector<Byte> source() const {
    std::vector<Byte> values(source_bytes());
    std::mt19937 random;
    std::generate(values.begin(), values.end(), [&] { return static_cast<Byte>(random()); });
    return values;
  }
  std::vector<Byte> guards() const { return std::vector<Byte>(destination_bytes(), Byte{0xa5}); }
  std::vector<Byte> expected() const {
    const std::vector<Byte> from = source();
    std::vector<Byte> values = guards();
    for (const Place& place : places_) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(place.source), place.bytes,
                  values.begin() + static_cast<std::ptrdiff_t>(place.destination));
    }
    return values;
  }
  /// The buffers' addresses are multiples of 16.
  void write_pieces(ScatterPiece* pieces, const Byte* source, Byte* destination) const {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      pieces[i] = {source + places_[i].source, destination + places_[i].destination,
                   places_[i].bytes};
    }
  }
  /// Empty: all is as expected; else what is not.
  std::string differs(const Byte* seen) const {
    const std::vector<Byte> wanted = expected();
    if (std::memcmp(seen, wanted.data(), wanted.size()) == 0) {
      return "";
    }
    for (const Place& place : places_) {
      const Bytes begin = place.destination / kUnitBytes * kUnitBytes;
      for (Bytes at = begin; at < place.destination + place.bytes + kUnitBytes; ++at) {
        if (seen[at] != wanted[at]) {
          return "piece of " + std::to_string(place.bytes) + " bytes, source " +
                 std::to_string(place.source % kUnitBytes) + ", destination " +
                 std::to_string(place.destination % kUnitBytes) + ": byte " +
                 std::to_string(static_cast<std::ptrdiff_t>(at - place.destination)) + " is " +
                 std::to_string(seen[at]) + ", not " + std::to_string(wanted[at]);
        }
      }
    }
    return "a byte beside all pieces";
  }

 private:
  static constexpr Bytes kGuardBytes = 3 * kUnitBytes;
  struct Place {
    Bytes source;
    Bytes destination;
    Bytes bytes;
  };
  std::vector<Place> places_;
  Bytes source_bytes_ = kUnitBytes;
  Bytes destination_bytes_ = kUnitBytes;
};

std::vector<Bytes> lengths_to(Bytes most) {
  std::vector<Bytes> lengths(most + 1);
  for (Bytes bytes = 0; bytes <= most; ++bytes) {
    lengths[bytes] = bytes;
  }
  return lengths;
}
const std::vector<Bytes> kLongLengths = {511,   512,   513,   2032,  2047,  2048,  2049, 2063,
                                         2064,  4095,  4096,  4097,  4112,  6143,  8191, 16384,
                                         16401, 65535, 65536, 65537, 66000, 300001};

// ---- the kernel's code --------------------------------------------------------------------------

/// One launch as the GPU runs it, with warps of `kLanes`: all lanes load, then all store.
template <Word kLanes>
void run_kernel(const ScatterLaunch& launch) {
  constexpr Word kWarps = kScatterThreads / kLanes;
  const ScatterArguments& arguments = launch.arguments;
  for (Word block = 0; block < launch.shape.grid[0]; ++block) {
    const ScatterShare share(arguments, block);
    for (Word warp = 0; warp < kWarps; ++warp) {
      kernels::for_slices(
          arguments.pieces + share.first, share.count, share.part * kWarps + warp,
          share.parts * kWarps, [](const ScatterCut& cut, Wide slice) {
            std::vector<ScatterLane<kLanes>> lanes;
            lanes.reserve(kLanes);
            for (Word lane = 0; lane < kLanes; ++lane) {
              lanes.emplace_back(cut, slice, lane);
            }
            for (Word row = 0; row < ScatterLane<kLanes>::kRows && lanes[0].has(row); ++row) {
              for (Word lane = 0; lane < kLanes; ++lane) {
                lanes[lane].store(row, lanes[0].is_shifted()
                                           ? lanes[(lane + 1) % kLanes].for_lane_before(row)
                                           : Unit{});
              }
            }
            for (const auto& lane : lanes) {
              lane.store_byte();
            }
          });
    }
  }
}

/// 16 bytes aligned, as buffers of a GPU are at least.
class Buffer {
 public:
  explicit Buffer(const std::vector<Byte>& values) : memory_(values.size() / kUnitBytes + 1) {
    std::memcpy(data(), values.data(), values.size());
  }
  Byte* data() { return reinterpret_cast<Byte*>(memory_.data()); }

 private:
  std::vector<Unit> memory_;
};

template <Word kLanes>
std::string kernel_differs(const Batch& batch, const ScatterTuning& tuning = {}) {
  Buffer source(batch.source());
  Buffer destination(batch.guards());
  std::vector<ScatterPiece> pieces(batch.count());
  batch.write_pieces(pieces.data(), source.data(), destination.data());
  run_kernel<kLanes>(scatter_launch(pieces.data(), pieces.size(), kLanes, tuning));
  return batch.differs(destination.data());
}

TEST(ScatterKernel, JoinEveryShift) {
  Byte bytes[2 * kUnitBytes];
  for (Word i = 0; i < sizeof bytes; ++i) {
    bytes[i] = static_cast<Byte>(i * 11 + 3);
  }
  Unit low;
  Unit high;
  std::memcpy(&low, bytes, kUnitBytes);
  std::memcpy(&high, bytes + kUnitBytes, kUnitBytes);
  for (Word shift = 1; shift < kUnitBytes; ++shift) {
    const Unit joined = kernels::join(low, high, shift);
    Byte seen[kUnitBytes];
    std::memcpy(seen, &joined, kUnitBytes);
    EXPECT_TRUE(std::equal(seen, seen + kUnitBytes, bytes + shift)) << shift;
  }
}

TEST(ScatterKernel, EveryAlignmentAndShortLength) {
  Batch batch;
  batch.add_every_alignment(lengths_to(300));
  EXPECT_EQ(kernel_differs<32>(batch), "");
  EXPECT_EQ(kernel_differs<64>(batch), "");
}

TEST(ScatterKernel, LongPieces) {
  Batch batch;
  for (const Word source : {0U, 1U, 4U, 10U, 15U}) {
    for (const Word destination : {0U, 3U, 8U, 15U}) {
      for (const Bytes bytes : kLongLengths) {
        batch.add(source, destination, bytes);
      }
    }
  }
  batch.shuffle(1);
  EXPECT_EQ(kernel_differs<32>(batch), "");
  EXPECT_EQ(kernel_differs<64>(batch), "");
}

TEST(ScatterKernel, AnySplitAndGroup) {
  for (const std::size_t count : {1, 2, 63, 64, 65, 200}) {
    Batch batch;
    batch.add_random(count, 9000, static_cast<unsigned>(count));
    for (const Word group : {1U, 3U, 8U, 64U}) {
      for (const Word split : {1U, 2U, 32U}) {
        EXPECT_EQ(kernel_differs<32>(batch, {.group = group, .split = split}), "")
            << count << " pieces, group " << group << ", split " << split;
      }
    }
  }
}

TEST(ScatterLaunch, EveryPieceInOneGroup) {
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{2}, std::size_t{8}, std::size_t{9}, std::size_t{64},
        std::size_t{255}, std::size_t{256}, std::size_t{257}, std::size_t{511}, std::size_t{513},
        std::size_t{4097}, std::size_t{65535}, std::size_t{65537}, std::size_t{1} << 20}) {
    const ScatterLaunch launch = scatter_launch(nullptr, count, 32);
    std::size_t next = 0;
    Word parts = 0;
    for (Word block = 0; block < launch.shape.grid[0]; ++block) {
      const ScatterShare share(launch.arguments, block);
      EXPECT_EQ(share.first, next) << count;
      EXPECT_EQ(share.part, parts) << count;
      EXPECT_LE(share.count, kernels::kScatterGroupMax);
      EXPECT_GE(share.count, 1U);
      if (++parts == share.parts) {
        parts = 0;
        next += share.count;
      }
    }
    EXPECT_EQ(next, count);
    EXPECT_EQ(launch.shape.block[0], kScatterThreads);
  }
  // Few pieces are spread over many blocks, but no more than start at once.
  EXPECT_EQ(scatter_launch(nullptr, 1, 32).shape.grid[0], 4U);
  EXPECT_EQ(scatter_launch(nullptr, 64, 32).shape.grid[0], 64U);
  EXPECT_EQ(scatter_launch(nullptr, 1, 1).shape.block[0], 1U);
}

TEST(ScatterImages, HoldTheKernel) {
  for (const auto& image : kernels::images()) {
    const auto unpacked = kernels::unpack(image);
    ASSERT_TRUE(unpacked.ok()) << image.target << ": " << unpacked.status().message();
    const std::string_view bytes(reinterpret_cast<const char*>(unpacked->data()), unpacked->size());
    EXPECT_NE(bytes.find("scatter_copy"), std::string_view::npos) << image.target;
  }
}

TEST(ScatterCpu, CopiesAtOnce) {
  Batch batch;
  batch.add_every_alignment({0, 1, 15, 16, 17, 300, 4096});
  batch.shuffle(2);
  Buffer source(batch.source());
  Buffer destination(batch.guards());
  std::vector<ScatterPiece> pieces(batch.count());
  batch.write_pieces(pieces.data(), source.data(), destination.data());
  ScatterCopy copy;
  EXPECT_TRUE(copy.copy(nullptr, nullptr, 0).ok());
  EXPECT_EQ(batch.guards(),
            std::vector<Byte>(destination.data(), destination.data() + batch.destination_bytes()));
  EXPECT_TRUE(copy.copy(nullptr, pieces.data(), pieces.size()).ok());
  EXPECT_EQ(batch.differs(destination.data()), "");
}

// ---- the tables ---------------------------------------------------------------------------------

class Scatter : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = open_table(GetParam());
    ASSERT_NE(table_.api, nullptr);
    if (table_.library != nullptr) {
      table_.fail("");
    }
    ASSERT_TRUE(api().initialize().ok());
    Result<ScatterCopy> made = ScatterCopy::create(api(), kDevice);
    if (made.status().code() == ErrorCode::kUnsupported && !table_.is_real()) {
      GTEST_SKIP() << made.status().message();
    }
    ASSERT_TRUE(made.ok()) << made.status().message();
    copy_ = std::move(*made);
    stream_ = *api().create_stream(kDevice);
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_TRUE(api().destroy_stream(stream_).ok());
    }
    copy_ = ScatterCopy();
  }

  Api& api() { return *table_.api; }
  /// Launches since the fake's counts were set to 0.
  long launches() const {
    return table_.calls(table_.name == "hip" ? "hipModuleLaunchKernel" : "cuLaunchKernel");
  }

  enum class Source { kDevice, kPinned };
  std::string batch_differs(const Batch& batch, Source from) {
    const bool is_pinned = from == Source::kPinned;
    auto* const source =
        static_cast<Byte*>(is_pinned ? *api().allocate_pinned(batch.source_bytes(), kDevice)
                                     : *api().allocate_device(kDevice, batch.source_bytes()));
    auto* const destination =
        static_cast<Byte*>(*api().allocate_device(kDevice, batch.destination_bytes()));
    auto* const pieces = static_cast<ScatterPiece*>(
        *api().allocate_pinned(batch.count() * sizeof(ScatterPiece), kDevice));
    EXPECT_TRUE(api().copy(source, batch.source().data(), batch.source_bytes()).ok());
    EXPECT_TRUE(api().copy(destination, batch.guards().data(), batch.destination_bytes()).ok());
    batch.write_pieces(pieces, source, destination);
    const Status queued = copy_.copy(stream_, pieces, batch.count());
    EXPECT_TRUE(queued.ok()) << queued.message();
    EXPECT_TRUE(api().wait_stream(stream_).ok());
    std::vector<Byte> seen(batch.destination_bytes());
    EXPECT_TRUE(api().copy(seen.data(), destination, seen.size()).ok());
    EXPECT_TRUE((is_pinned ? api().free_pinned(source) : api().free_device(source)).ok());
    EXPECT_TRUE(api().free_device(destination).ok());
    EXPECT_TRUE(api().free_pinned(pieces).ok());
    return batch.differs(seen.data());
  }

  static constexpr int kDevice = 0;
  Table table_;
  ScatterCopy copy_;
  Stream stream_ = nullptr;
};

TEST_P(Scatter, copy__every_alignment_and_short_length) {
  Batch batch;
  batch.add_every_alignment(lengths_to(300));
  batch.shuffle(3);
  EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
  EXPECT_EQ(batch_differs(batch, Source::kPinned), "");
}

TEST_P(Scatter, copy__long_pieces) {
  Batch batch;
  for (const Word source : {0U, 1U, 4U, 10U, 15U}) {
    for (const Word destination : {0U, 3U, 8U, 15U}) {
      for (const Bytes bytes : kLongLengths) {
        batch.add(source, destination, bytes);
      }
    }
  }
  batch.shuffle(4);
  EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
  EXPECT_EQ(batch_differs(batch, Source::kPinned), "");
  Batch one;
  one.add(10, 3, (Bytes{4} << 20) + 5);
  EXPECT_EQ(batch_differs(one, Source::kDevice), "");
}

TEST_P(Scatter, copy__every_size_of_a_batch) {
  for (const std::size_t count :
       {1, 2, 3, 7, 8, 9, 31, 64, 65, 127, 255, 256, 257, 511, 512, 513, 1000, 4096, 4097, 9001}) {
    Batch batch;
    batch.add_random(count, count > 600 ? 600 : 5000, static_cast<unsigned>(count));
    EXPECT_EQ(batch_differs(batch, Source::kDevice), "") << count;
  }
}

TEST_P(Scatter, copy__many_pieces) {
  Batch batch;
  batch.add_random(200000, 64, 5);
  EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
}

TEST_P(Scatter, copy__pieces_without_bytes) {
  Batch batch;
  for (int i = 0; i < 100; ++i) {
    batch.add(1, 2, 0);
  }
  EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
  batch.add(1, 2, 3);
  EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
}

TEST_P(Scatter, copy__one_launch_and_none_for_no_pieces) {
  EXPECT_TRUE(copy_.copy(stream_, nullptr, 0).ok());
  if (table_.library == nullptr) {
    return;  // Only the fakes count.
  }
  table_.fail("");
  EXPECT_TRUE(copy_.copy(stream_, nullptr, 0).ok());
  EXPECT_EQ(launches(), 0);
  for (const std::size_t count : {1, 8, 1000, 100000}) {
    Batch batch;
    batch.add_random(count, 40, 6);
    table_.fail("");
    EXPECT_EQ(batch_differs(batch, Source::kDevice), "");
    EXPECT_EQ(launches(), 1) << count;
  }
}

TEST_P(Scatter, copy__in_the_order_of_the_stream) {
  constexpr int kBatches = 20;
  constexpr Bytes kBytes = 10000;
  auto* const memory = static_cast<Byte*>(*api().allocate_device(kDevice, (kBatches + 1) * kBytes));
  auto* const pieces =
      static_cast<ScatterPiece*>(*api().allocate_pinned(kBatches * sizeof(ScatterPiece), kDevice));
  ASSERT_TRUE(api().fill_async(memory, 0x11, (kBatches + 1) * kBytes, stream_).ok());
  ASSERT_TRUE(api().fill_async(memory, 0x5b, kBytes, stream_).ok());
  for (int i = 0; i < kBatches; ++i) {
    pieces[i] = {memory + i * kBytes, memory + (i + 1) * kBytes, kBytes};
    ASSERT_TRUE(copy_.copy(stream_, pieces + i, 1).ok());
  }
  ASSERT_TRUE(api().wait_stream(stream_).ok());
  std::vector<Byte> seen(kBytes);
  ASSERT_TRUE(api().copy(seen.data(), memory + kBatches * kBytes, kBytes).ok());
  EXPECT_EQ(seen, std::vector<Byte>(kBytes, Byte{0x5b}));
  EXPECT_TRUE(api().free_device(memory).ok());
  EXPECT_TRUE(api().free_pinned(pieces).ok());
}

TEST_P(Scatter, copy__failures_are_told) {
  ScatterPiece piece{};
  EXPECT_EQ(copy_.copy(stream_, &piece, std::size_t{1} << 40).code(), ErrorCode::kInvalidArgument);
  if (table_.library != nullptr) {
    table_.fail(table_.name == "hip" ? "hipModuleLaunchKernel" : "cuLaunchKernel");
    EXPECT_FALSE(copy_.copy(stream_, &piece, 1).ok());
    EXPECT_FALSE(ScatterCopy::create(api(), kDevice).ok());
    table_.fail("");
  }
}

INSTANTIATE_TEST_SUITE_P(device, Scatter, testing::Values("host", "cuda", "hip"),
                         [](const auto& table) { return std::string(table.param); });

}  // namespace
}  // namespace tutti::device::test
