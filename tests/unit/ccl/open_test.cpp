// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// CclLibrary::open over the fakes. Each case runs in a process of its own, since a library that is
// loaded once stays.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ccl/ccl.hpp"
#include "support/forked_ranks.hpp"

namespace tutti::ccl {
namespace {

namespace fs = std::filesystem;
using test::in_child;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/tutti-open-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryDirectory() { fs::remove_all(path_); }
  std::string copy(const char* library, const std::string& name) const {
    const fs::path to = path_ / name;
    fs::create_directories(to.parent_path());
    fs::copy_file(library, to);
    return to.string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

/// The status of open() in a process of its own: "<code>|<message>".
std::string refusal_of(const std::string& wanted, const std::string& device,
                       const std::string& path) {
  return in_child([&] {
    const auto library = CclLibrary::open(wanted, device, path);
    return library.ok()
               ? "taken: " + (*library)->path()
               : std::string(to_string(library.status().code())) + "|" + library.status().message();
  });
}

TEST(CclOpen, open__path_is_taken) {
  const auto answer = in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    CHILD_EXPECT(std::string((*library)->name()) == "nccl", (*library)->name());
    CHILD_EXPECT((*library)->path() == FAKE_NCCL, (*library)->path());
    CHILD_EXPECT((*library)->found_by() == "TUTTI_CCL_LIBRARY", (*library)->found_by());
    CHILD_EXPECT((*library)->version() == 22304, std::to_string((*library)->version()));
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__hip_takes_rccl) {
  const auto answer = in_child([]() -> std::string {
    const auto library = CclLibrary::open("auto", "hip", FAKE_RCCL);
    CHILD_OK(library.status());
    CHILD_EXPECT(std::string((*library)->name()) == "rccl", (*library)->name());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__loaded_copy_goes_before_the_path) {
  const auto answer = in_child([]() -> std::string {
    const TemporaryDirectory directory;
    const std::string other = directory.copy(FAKE_NCCL, "libnccl.so.2");
    CHILD_EXPECT(dlopen(other.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr, dlerror());
    const auto library = CclLibrary::open("nccl", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    CHILD_EXPECT((*library)->path() == other, (*library)->path());
    CHILD_EXPECT((*library)->found_by() == "already loaded in the process", (*library)->found_by());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__loaded_copy_is_found_without_its_soname) {
  const auto answer = in_child([]() -> std::string {
    CHILD_EXPECT(dlopen(FAKE_NCCL_RENAMED, RTLD_NOW | RTLD_LOCAL) != nullptr, dlerror());
    CHILD_EXPECT(dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) == nullptr, "soname");
    const auto library = CclLibrary::open("auto", "cuda", "");
    CHILD_OK(library.status());
    CHILD_EXPECT((*library)->path() == FAKE_NCCL_RENAMED, (*library)->path());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__loaded_copy_of_the_other_brand_is_not_taken) {
  const auto answer = in_child([]() -> std::string {
    CHILD_EXPECT(dlopen(FAKE_RCCL, RTLD_NOW | RTLD_LOCAL) != nullptr, dlerror());
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_OK(library.status());
    CHILD_EXPECT((*library)->path() == FAKE_NCCL, (*library)->path());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__wheel_copy_is_found_through_the_virtual_environment) {
  const auto answer = in_child([]() -> std::string {
    const TemporaryDirectory directory;
    const std::string wheel =
        directory.copy(FAKE_NCCL, "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2");
    setenv("VIRTUAL_ENV", directory.path().c_str(), 1);
    const auto library = CclLibrary::open("auto", "cuda", "");
    CHILD_OK(library.status());
    CHILD_EXPECT((*library)->path() == wheel, (*library)->path());
    CHILD_EXPECT((*library)->found_by() == "PyTorch wheel", (*library)->found_by());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__too_old_a_wheel_is_passed_over) {
  const auto answer = in_child([]() -> std::string {
    const TemporaryDirectory directory;
    const std::string wheel =
        directory.copy(FAKE_NCCL, "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2");
    setenv("VIRTUAL_ENV", directory.path().c_str(), 1);
    setenv("FAKE_CCL_VERSION", "21703", 1);
    const auto library = CclLibrary::open("auto", "cuda", "");
    CHILD_EXPECT(!library.ok(), "taken");
    const std::string text = library.status().message();
    CHILD_EXPECT(contains(text, wheel + ": version 2.17.3 is below 2.18.0"), text);
    CHILD_EXPECT(contains(text, "system: "), text);
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__system_copy_is_found_by_its_soname) {
  // The loader reads LD_LIBRARY_PATH when a process starts, so this test runs itself again.
  const std::string directory = fs::path(FAKE_NCCL).parent_path().string();
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (path == nullptr || directory != path) {
    const auto answer = in_child([&]() -> std::string {
      setenv("LD_LIBRARY_PATH", directory.c_str(), 1);
      const std::string self = fs::read_symlink("/proc/self/exe").string();
      execl(self.c_str(), self.c_str(),
            "--gtest_filter=CclOpen.open__system_copy_is_found_by_its_soname", nullptr);
      return "not executed";
    });
    EXPECT_EQ(answer, "");
    return;
  }
  const auto library = CclLibrary::open("auto", "cuda", "");
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ((*library)->path(), FAKE_NCCL);
  EXPECT_EQ((*library)->found_by(), "system");
}

TEST(CclOpen, open__error_names_every_place) {
  const std::string text = in_child([] {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "ROCM_PATH"}) {
      unsetenv(name);
    }
    const auto library = CclLibrary::open("auto", "hip", "");
    return library.ok()
               ? "taken: " + (*library)->path()
               : std::string(to_string(library.status().code())) + "|" + library.status().message();
  });
  if (text.rfind("taken: ", 0) == 0) {
    GTEST_SKIP() << "this machine has RCCL: " << text;
  }
  EXPECT_EQ(text.substr(0, text.find('|')), "unavailable");
  EXPECT_TRUE(contains(text, "no usable RCCL for this HIP device")) << text;
  EXPECT_TRUE(contains(text, "already loaded: no librccl.so in this process")) << text;
  EXPECT_TRUE(contains(text, "TUTTI_CCL_LIBRARY: not set")) << text;
  EXPECT_TRUE(contains(text, "PyTorch wheel: no site-packages directory known")) << text;
  EXPECT_TRUE(contains(text, "system: librccl.so.1: cannot open")) << text;
  EXPECT_TRUE(contains(text, "set TUTTI_CCL_LIBRARY to its librccl.so.1")) << text;
}

TEST(CclOpen, open__path_that_does_not_load_is_an_error) {
  const std::string text = refusal_of("auto", "cuda", "/nowhere/libnccl.so.2");
  EXPECT_EQ(text.substr(0, text.find('|')), "invalid configuration");
  EXPECT_TRUE(contains(text, "TUTTI_CCL_LIBRARY: /nowhere/libnccl.so.2: cannot open")) << text;
}

TEST(CclOpen, open__path_to_something_else_names_the_missing_symbol) {
  const std::string text = refusal_of("auto", "cuda", "libm.so.6");
  EXPECT_EQ(text.substr(0, text.find('|')), "unsupported");
  EXPECT_TRUE(contains(text, "has no symbol ncclGetVersion")) << text;
}

TEST(CclOpen, open__path_of_the_other_brand_is_refused_by_name) {
  const std::string text = refusal_of("auto", "cuda", FAKE_RCCL);
  EXPECT_EQ(text, "invalid configuration|TUTTI_CCL_LIBRARY: " + std::string(FAKE_RCCL) +
                      " is RCCL, which cannot drive a CUDA device");
}

TEST(CclOpen, open__path_of_the_other_brand_is_refused_by_soname) {
  const TemporaryDirectory directory;
  const std::string disguised = directory.copy(FAKE_NCCL, "libcollectives.so");
  const std::string text = refusal_of("auto", "hip", disguised);
  EXPECT_TRUE(contains(text, disguised + " is NCCL, which cannot drive a HIP device")) << text;
}

TEST(CclOpen, open__version_below_the_minimum_is_an_error_with_a_remedy) {
  setenv("FAKE_CCL_VERSION", "21799", 1);
  const std::string text = refusal_of("auto", "cuda", FAKE_NCCL);
  unsetenv("FAKE_CCL_VERSION");
  EXPECT_EQ(text.substr(0, text.find('|')), "unsupported");
  EXPECT_TRUE(contains(text, "version 2.17.99 is below 2.18.0")) << text;
  EXPECT_TRUE(contains(text, "install NCCL 2.18 or newer")) << text;
}

TEST(CclOpen, open__version_at_the_minimum_is_taken) {
  setenv("FAKE_CCL_VERSION", "21800", 1);
  const std::string text = refusal_of("auto", "cuda", FAKE_NCCL);
  unsetenv("FAKE_CCL_VERSION");
  EXPECT_EQ(text, "taken: " + std::string(FAKE_NCCL));
}

TEST(CclOpen, open__too_old_a_loaded_copy_ends_the_search) {
  const auto answer = in_child([]() -> std::string {
    CHILD_EXPECT(dlopen(FAKE_NCCL_RENAMED, RTLD_NOW | RTLD_LOCAL) != nullptr, dlerror());
    setenv("FAKE_CCL_VERSION", "21000", 1);
    const auto library = CclLibrary::open("auto", "cuda", FAKE_NCCL);
    CHILD_EXPECT(!library.ok(), (*library)->path());
    CHILD_EXPECT(library.status().code() == ErrorCode::kUnsupported, "code");
    CHILD_EXPECT(contains(library.status().message(), "already loaded"),
                 library.status().message());
    return "";
  });
  EXPECT_EQ(answer, "");
}

TEST(CclOpen, open__version_that_cannot_be_told_is_an_error) {
  setenv("FAKE_CCL_FAIL", "ncclGetVersion", 1);
  const std::string text = refusal_of("auto", "cuda", FAKE_NCCL);
  unsetenv("FAKE_CCL_FAIL");
  EXPECT_EQ(text.substr(0, text.find('|')), "library failed");
  EXPECT_TRUE(contains(text, "ncclGetVersion: internal error")) << text;
}

TEST(CclOpen, open__wanted_library_must_fit_the_device) {
  EXPECT_EQ(refusal_of("rccl", "cuda", ""),
            "invalid configuration|TUTTI_CCL=rccl: rccl cannot drive a CUDA device; use nccl or "
            "auto");
  EXPECT_EQ(refusal_of("nccl", "hip", ""),
            "invalid configuration|TUTTI_CCL=nccl: nccl cannot drive a HIP device; use rccl or "
            "auto");
  EXPECT_EQ(refusal_of("none", "cuda", ""),
            "unavailable|TUTTI_CCL=none: NCCL and RCCL are turned off");
  EXPECT_EQ(refusal_of("ucc", "cuda", ""),
            "invalid configuration|TUTTI_CCL=ucc: takes auto, nccl, rccl or none");
  EXPECT_EQ(refusal_of("auto", "host", ""),
            "unsupported|NCCL needs a CUDA device and RCCL a HIP device; the device here is "
            "\"host\"");
}

TEST(CclOpen, format_version__both_numberings) {
  EXPECT_EQ(format_version(22807), "2.28.7");
  EXPECT_EQ(format_version(21801), "2.18.1");
  EXPECT_EQ(format_version(21000), "2.10.0");
  EXPECT_EQ(format_version(2804), "2.8.4");
}

}  // namespace
}  // namespace tutti::ccl
