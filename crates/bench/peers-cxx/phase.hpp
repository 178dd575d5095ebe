// What `guira bench map` asks for: crates/bench/src/map/phase.rs and entry.rs, in C++. Keys, values and lines are the same.
#pragma once

#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

using u64 = std::uint64_t;

enum class Work { fill, hits, misses, update, replace, timed_fill, slots };

// "WORK FROM TO COUNT LOOKUPS BATCHED MILLISECONDS CORE,CORE..."
struct Phase {
    Work work{};
    u64 start = 0, end = 0, count = 0, lookups = 0, measure_ms = 0;
    bool batched = false;
    std::vector<unsigned> cores;

    // Whether the whole line makes sense.
    bool parse(const std::string& line) {
        std::istringstream words(line);
        std::string name, core_list;
        words >> name >> start >> end >> count >> lookups >> std::boolalpha >> batched >> measure_ms >> core_list;
        if (!words || !(words >> std::ws).eof() || start > end) return false;
        const std::array<const char*, 7> names{"fill", "hits", "misses", "update", "replace", "timed-fill", "slots"};
        std::size_t known = 0;
        while (known < names.size() && name != names[known]) ++known;
        if (known == names.size()) return false;
        work = static_cast<Work>(known);
        std::istringstream list(core_list);
        for (std::string core; std::getline(list, core, ',');) {
            if (core.empty() || core.find_first_not_of("0123456789") != std::string::npos) return false;
            cores.push_back(static_cast<unsigned>(std::stoul(core)));
        }
        return !cores.empty();
    }
};

// The key of a number; no two numbers share one.
inline u64 key_of(u64 number) {
    const u64 product = number * 0x9e3779b97f4a7c15;
    return product ^ (product >> 32);
}

// Words that all say the same; the lowest bits count updates.
template <std::size_t Words>
struct Value {
    static constexpr u64 updates = (1 << 16) - 1;
    std::array<u64, Words> words;

    static Value of(u64 key) {
        Value value;
        value.words.fill(key & ~updates);
        return value;
    }

    void update() {
        const u64 word = words[0];
        words.fill((word & ~updates) | ((word + 1) & updates));
    }

    // 0 if it is a value of `key`. Looks at every word.
    u64 difference(u64 key) const {
        u64 torn = 0;
        for (const u64 word : words) torn |= word ^ words[0];
        return torn | ((words[0] ^ key) & ~updates);
    }
};

// wyrand, the same numbers as Rust's contenders draw.
class Draw {
public:
    explicit Draw(u64 seed) : state(seed) {}

    u64 below(u64 end) {
        state += 0xa0761d6478bd642f;
        const auto product = static_cast<unsigned __int128>(state) * (state ^ 0xe7037ed1a0b428db);
        const u64 bits = static_cast<u64>(product) ^ static_cast<u64>(product >> 64);
        return static_cast<u64>((static_cast<unsigned __int128>(bits) * end) >> 64);
    }

private:
    u64 state;
};
