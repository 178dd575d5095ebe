// Plays a phase on a map: crates/bench/src/map/play.rs and crew.rs, in C++. Every answer is looked at, and lookups do not wait
// for each other.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <ostream>
#include <thread>

#include "phase.hpp"

constexpr u64 batch_len = 64;     // keys made at a time
constexpr u64 turn_batches = 16;  // batches between two looks at the clock

inline u64 now_ns(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<u64>(time.tv_sec) * 1'000'000'000 + static_cast<u64>(time.tv_nsec);
}

// One thread of a crew, and what came of its work.
template <class Map, class V>
class Worker {
public:
    u64 operations = 0, elapsed_ns = 0, cpu_ns = 0, wrong = 0;
    std::vector<std::uint32_t> latencies_ns;

    Worker(Map& its_map, const Phase& its_phase, u64 number)
        : map(its_map),
          phase(its_phase),
          thread(number),
          threads(phase.cores.size()),
          draw(phase.end ^ (thread << 48)) {
        if (phase.work == Work::timed_fill) latencies_ns.resize(share(phase.end - phase.start));
    }

    void work() {
        switch (phase.work) {
            case Work::fill: return until_done([&] { fill(); });
            case Work::timed_fill: return until_done([&] { timed_fill(); });
            case Work::replace: return until_done([&] { replace(); });
            case Work::update: return for_a_while([&] { updates(); });
            default: return for_a_while([&] { lookups(); });
        }
    }

private:
    Map& map;
    const Phase& phase;
    u64 thread, threads;
    Draw draw;

    template <class Do>
    void until_done(Do piece) {
        const u64 begin = now_ns(CLOCK_MONOTONIC), begin_cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
        piece();
        cpu_ns = std::max<u64>(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_cpu, 1);
        elapsed_ns = std::max<u64>(now_ns(CLOCK_MONOTONIC) - begin, 1);
    }

    // A quarter of the time to warm up.
    template <class Do>
    void for_a_while(Do piece) {
        const u64 measure_ns = phase.measure_ms * 1'000'000, warm = now_ns(CLOCK_MONOTONIC);
        while (now_ns(CLOCK_MONOTONIC) - warm < measure_ns / 4) piece();
        operations = 0;
        until_done([&] {
            const u64 begin = now_ns(CLOCK_MONOTONIC);
            do piece();
            while (now_ns(CLOCK_MONOTONIC) - begin < measure_ns);
        });
    }

    u64 share(u64 count) const { return (count + threads - 1 - thread) / threads; }
    u64 own(u64 first, u64 at) const { return first + at * threads + thread; }

    u64 look_up(u64 key) const {
        V value;
        return map.get(key, value) ? value.difference(key) : 1;
    }

    void check(u64 difference) {
        if (difference != 0) ++wrong;
    }

    // Calls `each` with the place of a batch among the thread's own numbers, its keys and how many they are.
    template <class Each>
    void own_batches(Each each) {
        const u64 all = share(phase.end - phase.start);
        std::array<u64, batch_len> keys;
        for (u64 first = 0; first < all; first += batch_len) {
            const u64 count = std::min(batch_len, all - first);
            for (u64 at = 0; at < count; ++at) keys[at] = key_of(own(phase.start, first + at));
            each(first, keys, count);
        }
    }

    void fill() {
        own_batches([&](u64 first, const auto& keys, u64 count) {
            u64 difference = 0;
            for (u64 at = 0; at < count; ++at) {
                difference |= !map.insert(keys[at], V::of(keys[at]));
                for (u64 lookup = 0; lookup < phase.lookups; ++lookup) {
                    const u64 known = draw.below(phase.start + first + at + 1);
                    difference |= look_up(key_of(known < phase.start ? known : own(phase.start, known - phase.start)));
                }
            }
            check(difference);
        });
        operations = share(phase.end - phase.start) * (1 + phase.lookups);
    }

    void timed_fill() {
        own_batches([&](u64 first, const auto& keys, u64 count) {
            for (u64 at = 0; at < count; ++at) {
                const u64 begin = now_ns(CLOCK_MONOTONIC);
                const bool is_new = map.insert(keys[at], V::of(keys[at]));
                const u64 latency_ns = now_ns(CLOCK_MONOTONIC) - begin;
                latencies_ns[first + at] = static_cast<std::uint32_t>(std::min<u64>(latency_ns, UINT32_MAX));
                check(!is_new);
            }
        });
    }

    void replace() {
        const u64 all = share(phase.count), stays = phase.start + phase.count;
        for (u64 at = 0; at < all; ++at) {
            u64 difference = !map.remove(key_of(own(phase.start, at)));
            difference |= look_around(stays);
            const u64 added = key_of(own(phase.end, at));
            difference |= !map.insert(added, V::of(added));
            difference |= look_around(stays);
            check(difference);
        }
        operations = 2 * all * (1 + phase.lookups);
    }

    u64 look_around(u64 stays) {
        u64 difference = 0;
        for (u64 lookup = 0; lookup < phase.lookups; ++lookup) {
            difference |= look_up(key_of(stays + draw.below(phase.end - stays)));
        }
        return difference;
    }

    std::array<u64, batch_len> random_keys() {
        std::array<u64, batch_len> keys;
        for (u64& key : keys) key = key_of(phase.start + draw.below(phase.end - phase.start));
        return keys;
    }

    void updates() {
        const u64 group = 1 + phase.lookups, used = batch_len / group * group;
        for (u64 turn = 0; turn < turn_batches; ++turn) {
            const auto keys = random_keys();
            u64 difference = 0;
            for (u64 at = 0; at < used; at += group) {
                difference |= !map.update(keys[at]);
                for (u64 other = at + 1; other < at + group; ++other) difference |= look_up(keys[other]);
            }
            check(difference);
        }
        operations += turn_batches * used;
    }

    void lookups() {
        const bool are_there = phase.work == Work::hits;
        for (u64 turn = 0; turn < turn_batches; ++turn) {
            const auto keys = random_keys();
            u64 difference = 0;
            V value;
            if (are_there) {
                for (const u64 key : keys) difference |= look_up(key);
            } else {
                for (const u64 key : keys) difference |= map.get(key, value);
            }
            check(difference);
        }
        operations += turn_batches * batch_len;
    }
};

inline bool pin(unsigned core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    return pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) == 0;
}

// Lets a crew work, a thread on each core; writes what came of it as a line.
template <class Map, class V>
void play(Map& map, const Phase& phase, std::ostream& out) {
    std::vector<Worker<Map, V>> crew;
    for (u64 thread = 0; thread < phase.cores.size(); ++thread) crew.emplace_back(map, phase, thread);
    std::barrier start(static_cast<std::ptrdiff_t>(crew.size()));
    std::vector<std::thread> threads;
    for (u64 thread = 0; thread < crew.size(); ++thread) {
        threads.emplace_back([&, thread] {
            const bool is_pinned = pin(phase.cores[thread]);
            start.arrive_and_wait();
            if (is_pinned) crew[thread].work();
            else crew[thread].wrong = 1;
        });
    }
    for (auto& thread : threads) thread.join();

    u64 operations = 0, elapsed_ns = 0, cpu_ns = 0, wrong = 0;
    std::vector<std::uint32_t> latencies_ns;
    for (auto& worker : crew) {
        operations += worker.operations;
        elapsed_ns = std::max(elapsed_ns, worker.elapsed_ns);
        cpu_ns += worker.cpu_ns;
        wrong += worker.wrong;
        latencies_ns.insert(latencies_ns.end(), worker.latencies_ns.begin(), worker.latencies_ns.end());
    }
    if (wrong > 0) {
        out << "wrong " << wrong << " answers, or cores that cannot be had\n";
    } else if (phase.work == Work::timed_fill && !latencies_ns.empty()) {
        out << "latencies";
        for (const double quantile : {0.5, 0.99, 0.9999, 1.0}) {
            const auto at = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(latencies_ns.size() - 1));
            std::nth_element(latencies_ns.begin(), latencies_ns.begin() + at, latencies_ns.end());
            out << ' ' << latencies_ns[static_cast<std::size_t>(at)];
        }
        out << '\n';
    } else {
        out << "spent " << operations << ' ' << elapsed_ns << ' ' << cpu_ns << '\n';
    }
}
