// Adds up what two places hold, each on the device or the host.
template <typename T>
__host__ __device__ bool add_one(T *to, T value) // whether it is what the type holds
{
    T before = *to;
    *to = (T)(before + value);
    return (T)0.5 != (T)0 || (double)*to == (double)before + (double)value;
}
template <typename T>
__global__ void add_all(T *to, const T *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        if (!add_one(to + i, from[i])) __trap();
}

// What a host function did, step by step, each with what reverses it. Memory that it frees is freed at the end.
struct Recording {
    struct Block {
        char *start;
        size_t nbytes;       // not known of memory of the host's that was given
        bool on_device, own, reread, managed;
        char *shadow;        // made when it is needed, or given
        int writers;
        bool kept;           // what a loop overwrites of it is kept one by one
        bool reals;          // it holds integers that are differentiated by
        bool written_again;  // by a step that runs again in the reverse
    };
    struct Saved {
        char *start;
        size_t nbytes;
        bool on_device;
        std::vector<char> bytes;
        char *copy;
    };
    struct Step {
        std::vector<Saved> saved;
        std::function<void()> reverse;
        bool runs_again, looks_back; // at what it left
    };
    struct Owed {
        char *to, *cell;
        bool wide;
    };
    static constexpr size_t unknown = (size_t)1 << 46;

    std::map<char *, Block> blocks;
    std::vector<Step> steps;
    std::vector<void *> on_device, on_host;
    std::vector<Owed> owed;
    std::vector<long long> times; // of events
    std::map<void *, char *> vectors; // variables of the program
    char *cells = nullptr;
    size_t used = 0;
    bool has_managed = false; // memory that both the host and kernels use
    const void *result = nullptr;

    Recording() = default;
    Recording(const Recording &) = delete;
    ~Recording()
    {
        for (void *memory : on_device) cudaFree(memory);
        for (void *memory : on_host) std::free(memory);
    }

    static void check(cudaError_t error)
    {
        if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    }

    // ---- memory

    char *add_block(void *start, size_t nbytes, bool is_on_device, bool own, void *shadow = nullptr)
    {
        char *at = (char *)start;
        blocks[at] = Block{at, nbytes, is_on_device, own, false, false, (char *)shadow, 0, false, false, false};
        return at;
    }
    char *allocate(size_t nbytes, bool is_on_device, bool is_managed = false)
    {
        void *memory = nullptr;
        if (is_managed) check(cudaMallocManaged(&memory, nbytes > 0 ? nbytes : 1));
        else if (is_on_device) check(cudaMalloc(&memory, nbytes > 0 ? nbytes : 1));
        else memory = std::calloc(nbytes > 0 ? nbytes : 1, 1);
        (is_on_device ? on_device : on_host).push_back(memory);
        return (char *)memory;
    }
    static size_t pitch(size_t nbytes) { return (nbytes + 511) / 512 * 512; } // of rows that are so wide
    char *device(size_t nbytes, size_t count) { return device(nbytes * count); }
    char *device(size_t nbytes) { return add_block(allocate(nbytes, true), nbytes, true, true); }
    char *host(size_t nbytes) { return add_block(allocate(nbytes, false), nbytes, false, true); }
    char *host(size_t count, size_t nbytes) { return host(count * nbytes); }
    char *managed(size_t nbytes)
    {
        char *memory = add_block(allocate(nbytes, true, true), nbytes, true, true);
        has_managed = blocks[memory].managed = true;
        return memory;
    }
    // Variables of the program: of the device, and of the host.
    template <typename T>
    void *symbol(const T &variable)
    {
        void *address = nullptr;
        check(cudaGetSymbolAddress(&address, variable));
        if (blocks.count((char *)address) == 0) add_block(address, sizeof(T), true, false);
        return address;
    }
    template <typename T>
    void *managed_variable(const T &variable)
    {
        void *address = symbol(variable);
        has_managed = blocks[(char *)address].managed = true;
        return address;
    }
    template <typename T>
    void *variable(const T &variable)
    {
        if (blocks.count((char *)&variable) == 0) add_block((void *)&variable, sizeof(T), false, false);
        return (void *)&variable;
    }
    // Memory that a variable of the program's leads to, and that nobody has given an adjoint.
    template <typename T>
    void leads_to(T *memory)
    {
        Block *found = memory == nullptr ? nullptr : known(memory);
        if (found != nullptr && found->nbytes == unknown && found->start != (const char *)memory)
            throw std::runtime_error("a variable leads to memory of the host that may be part of an argument's, whose "
                                     "size is not known: pass it as an argument");
        if (memory != nullptr && found == nullptr) given(memory, nullptr);
    }
    // Vectors of the program, as its functions here know them.
    struct Vector {
        void *data;
        size_t size, capacity;
    };
    template <typename T>
    void *vector_variable(std::vector<T> &variable)
    {
        char *&place = vectors[&variable];
        if (place != nullptr) return place;
        Vector found = {variable.data(), variable.size(), variable.capacity()};
        place = host(2 * sizeof found);
        std::memcpy(place, &found, sizeof found);
        std::memcpy(place + sizeof found, &found, sizeof found);
        if (found.data != nullptr) add_block(found.data, found.capacity * sizeof(T), false, false);
        return place;
    }
    void check_vectors()
    {
        for (const auto &[variable, place] : vectors)
            if (std::memcmp(place, place + sizeof(Vector), sizeof(Vector)) != 0)
                throw std::runtime_error("a host function that is differentiated gives a vector of the program another "
                                         "size: let it have that before");
    }
    void release(const void *) {}
    void result_is(const void *cell) { result = cell; }

    // Memory of the caller's: how far it reaches, the device knows of its own.
    template <typename T>
    void given(T *memory, void *shadow)
    {
        cudaPointerAttributes found;
        if (memory == nullptr) return;
        bool is_known = cudaPointerGetAttributes(&found, memory) == cudaSuccess;
        bool is_on_device = is_known && found.type >= cudaMemoryTypeDevice;
        cudaGetLastError();
        char *start = (char *)memory;
        size_t nbytes = unknown;
        if (is_on_device) {
            unsigned long long base = 0;
            check(range_of(&base, &nbytes, memory));
            auto next = blocks.upper_bound(start);
            nbytes -= (unsigned long long)start - base;
            if (next != blocks.end() && next->first < start + nbytes) nbytes = next->first - start;
            auto before = blocks.lower_bound(start);
            if (before != blocks.begin() && (--before)->first + before->second.nbytes > start)
                before->second.nbytes = start - before->first;
        }
        add_block(start, nbytes, is_on_device, false, shadow);
        if (!is_on_device || found.type != cudaMemoryTypeManaged) return;
        has_managed = blocks[start].managed = true;
        if (shadow == nullptr) return;
        check(cudaPointerGetAttributes(&found, shadow));
        if (found.type != cudaMemoryTypeManaged)
            throw std::runtime_error("the adjoint of managed memory must lie in managed memory, too");
    }
    static cudaError_t range_of(unsigned long long *base, size_t *nbytes, const void *memory)
    {
        void *function = nullptr;
        cudaDriverEntryPointQueryResult found;
        const char *name = "cuMemGetAddressRange";
#if CUDART_VERSION >= 12050
        cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
        cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
        if (error != cudaSuccess || function == nullptr) return cudaErrorUnknown;
        auto range = (int (*)(unsigned long long *, size_t *, unsigned long long))function;
        return range(base, nbytes, (unsigned long long)memory) == 0 ? cudaSuccess : cudaErrorInvalidValue;
    }
    Block *known(const void *memory)
    {
        auto found = blocks.upper_bound((char *)memory);
        if (found == blocks.begin() || (char *)memory > (--found)->first + found->second.nbytes) return nullptr;
        return &found->second;
    }
    bool is_real(const void *memory)
    {
        Block *found = memory == nullptr ? nullptr : known(memory);
        return found != nullptr && found->reals;
    }
    Block &block_of(const void *memory)
    {
        if (Block *found = known(memory)) return *found;
        throw std::runtime_error("a host function that is differentiated uses memory that it was not given");
    }
    // Whether what it holds may have derivatives: not where the caller gives no adjoint, and nothing was written.
    bool passes(const void *memory)
    {
        const Block &block = block_of(memory);
        return block.own || block.shadow != nullptr || block.nbytes != unknown || block.writers > 0;
    }
    void is_constant(const char *where, const void *memory)
    {
        if (memory != nullptr && block_of(memory).writers > 0)
            throw std::runtime_error(std::string(where) + ": memory of the caller's that has no adjoint is written, "
                                     "and read again: give it one");
    }
    void has_no_adjoint(const char *where, const void *memory)
    {
        if (memory != nullptr && block_of(memory).shadow != nullptr)
            throw std::runtime_error(std::string(where) + ": a variable leads to memory that is differentiated by: "
                                     "pass it as an argument");
    }
    size_t room(const void *memory)
    {
        Block &block = block_of(memory);
        return block.start + block.nbytes - (char *)memory;
    }

    template <typename T>
    T *shadow(T *memory)
    {
        if (memory == nullptr) return nullptr;
        Block &block = block_of(memory);
        if (block.shadow == nullptr) {
            if (block.nbytes == unknown)
                throw std::runtime_error("values go through memory of the host that has no adjoint: give it one");
            block.shadow = allocate(block.nbytes, block.on_device, block.managed);
            if (block.on_device) check(cudaMemset(block.shadow, 0, block.nbytes));
        }
        return (T *)(block.shadow + ((char *)memory - block.start));
    }

    // ---- numbers

    template <typename T>
    T *cell(T value)
    {
        const size_t most = 1 << 16;
        if (cells == nullptr || used + 16 > most) cells = host(most), used = 0;
        T *place = (T *)(cells + used);
        used += 16;
        *place = value;
        return place;
    }
    template <typename T>
    T *load(T *from)
    {
        T *place = cell(*from);
        if (!passes(from)) return place;
        record([=] { settle(), *shadow(from) += *shadow(place), *shadow(place) = 0; }, false);
        return place;
    }
    template <typename T>
    void store(T *to, T *place)
    {
        overwrite(to, sizeof(T));
        *to = *place;
        steps.back().reverse = [=] {
            settle();
            T adjoint = *shadow(to);
            *shadow(to) = 0;
            *shadow(place) += adjoint;
        };
    }

    // ---- steps

    void record(std::function<void()> reverse, bool runs_again)
    {
        steps.push_back(Step{{}, std::move(reverse), runs_again, false});
    }
    void save(char *start, size_t nbytes, bool is_on_device)
    {
        Saved saved{start, nbytes, is_on_device, {}, nullptr};
        if (is_on_device) saved.copy = allocate(nbytes, true);
        else saved.bytes.resize(nbytes);
        check(cudaMemcpy(is_on_device ? saved.copy : saved.bytes.data(), start, nbytes, cudaMemcpyDefault));
        steps.back().saved.push_back(std::move(saved));
    }
    static void put_back(const Saved &saved)
    {
        const void *from = saved.on_device ? saved.copy : saved.bytes.data();
        check(cudaMemcpy(saved.start, from, saved.nbytes, cudaMemcpyDefault));
    }
    static void put_back(const Step &step) // what was saved first was there first
    {
        for (size_t k = step.saved.size(); k > 0; --k) put_back(step.saved[k - 1]);
    }
    // A step that writes so many bytes.
    void overwrite(void *to, size_t nbytes)
    {
        Block &block = block_of(to);
        record(nullptr, false);
        ++block.writers;
        bool is_last = block.written_again && block.nbytes == unknown; // what was there before comes again
        if (block.reread || is_last) save((char *)to, nbytes, block.on_device);
        if (block.reals) reverses([=] { zero(shadow((char *)to), nbytes, block_of(to).on_device); });
    }
    // A step that writes somewhere behind pointers, and may run again. Whether it must tell what it overwrites, which
    // it does if it can.
    bool run_again(std::initializer_list<const void *> read, std::initializer_list<const void *> written,
                   const char *where, bool again = true, bool can_tell = false)
    {
        bool must_tell = false;
        record(nullptr, again);
        for (const void *memory : read)
            if (memory != nullptr) block_of(memory).reread = true;
        for (const void *memory : written) {
            if (memory == nullptr) continue;
            Block &block = block_of(memory);
            bool is_last = ++block.writers > 1 && !block.own && again;
            block.kept = block.nbytes == unknown && (block.reread || is_last);
            block.written_again = block.written_again || again;
            if (block.kept && !can_tell)
                throw std::runtime_error(std::string(where) + ": memory of the caller's on the host is overwritten, "
                                         "whose size is not known: use memory that the function allocates");
            must_tell = must_tell || block.kept;
            if (block.reread && !block.kept) save(block.start, block.nbytes, block.on_device);
            block.reread = false;
        }
        return must_tell;
    }
    // Of the last step: its reverse reads memory as the step left it. How far the caller's on the host reaches nobody
    // knows: that is as it is in the end.
    void looks_back(std::initializer_list<const void *> read)
    {
        steps.back().looks_back = true;
        for (const void *memory : read)
            if (memory != nullptr && block_of(memory).nbytes != unknown) block_of(memory).reread = true;
    }
    // Before a loop overwrites it.
    void keep(const void *memory, size_t nbytes)
    {
        char *start = (char *)memory;
        if (!block_of(memory).kept) return;
        std::vector<Saved> &saved = steps.back().saved;
        if (saved.empty() || saved.back().on_device || saved.back().start + saved.back().nbytes != start)
            saved.push_back(Saved{start, 0, false, {}, nullptr});
        saved.back().bytes.insert(saved.back().bytes.end(), start, start + nbytes);
        saved.back().nbytes += nbytes;
    }
    void apart(std::initializer_list<const void *> read, std::initializer_list<const void *> written, const char *where)
    {
        std::vector<const Block *> found; // of what is written, then of the others
        for (auto list : {written, read})
            for (const void *memory : list)
                if (memory != nullptr) found.push_back(&block_of(memory));
                else if (list.begin() == written.begin()) found.push_back(nullptr);
        for (size_t one = 0; one < written.size(); ++one)
            for (size_t other = one + 1; other < found.size(); ++other)
                if (found[one] != nullptr && found[one] == found[other])
                    throw std::runtime_error(std::string(where) + ": arguments share memory that is written");
    }
    void reverses(std::function<void()> reverse) { steps.back().reverse = std::move(reverse); }

    // ---- copies

    void copy(void *to, const void *from, size_t nbytes)
    {
        if (nbytes == 0 || to == from) return;
        overwrite(to, nbytes);
        Block *source = known(from);
        bool on_host = !block_of(to).on_device && source != nullptr && !source->on_device;
        if (on_host) std::memmove(to, from, nbytes);
        else check(cudaMemcpy(to, from, nbytes, cudaMemcpyDefault));
    }
    template <typename T>
    void copy_of(void *to, const void *from, size_t nbytes)
    {
        bool is_active = nbytes > 0 && passes(from);
        copy(to, from, nbytes);
        if (nbytes == 0 || to == from) return;
        if (!is_active) return reverses([=] { zero(shadow((char *)to), nbytes, block_of(to).on_device); });
        reverses([=] {
            settle();
            T *d_from = (T *)shadow((char *)from), *d_to = (T *)shadow((char *)to);
            if (block_of(from).on_device || block_of(to).on_device) {
                add<T>(d_from, d_to, nbytes / sizeof(T), block_of(from), block_of(to));
                zero((char *)d_to, nbytes, block_of(to).on_device);
                return;
            }
            std::vector<T> own(d_to, d_to + nbytes / sizeof(T)); // which may overlap
            zero((char *)d_to, nbytes, false);
            for (size_t i = 0; i < own.size(); ++i) add_here(d_from + i, own[i]);
        });
    }
    // Of integers, which may be differentiated by.
    template <typename T>
    void copy_integers(void *to, const void *from, size_t nbytes)
    {
        if (nbytes == 0 || to == from) return;
        if (!is_real(from)) return copy(to, from, nbytes);
        block_of(to).reals = true;
        copy_of<T>(to, from, nbytes);
    }
    template <typename T>
    void copy_rows_integers(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height)
    {
        for (size_t row = 0; row < height; ++row)
            copy_integers<T>((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    }
    void integers(const void *memory)
    {
        if (memory != nullptr) block_of(memory).reals = true;
    }
    // A launch that has derivatives by some of its integers: what it writes has them if what it reads has.
    void pass_on(std::initializer_list<const void *> read, std::initializer_list<const void *> written)
    {
        bool some = false;
        for (const void *memory : read) some = some || is_real(memory);
        for (const void *memory : written)
            if (some) integers(memory);
    }
    void looks_at(const char *where, const void *memory)
    {
        if (is_real(memory))
            throw std::runtime_error(std::string(where) + ": integers that are differentiated by are more than copied "
                                     "and passed to kernels that add, subtract and multiply them: use float");
    }
    void copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height)
    {
        for (size_t row = 0; row < height; ++row)
            copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    }
    template <typename T>
    void copy_rows_of(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height)
    {
        for (size_t row = 0; row < height; ++row)
            copy_of<T>((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    }
    static void zero(char *memory, size_t nbytes, bool is_on_device)
    {
        if (is_on_device) check(cudaMemset(memory, 0, nbytes));
        else std::memset(memory, 0, nbytes);
    }
    template <typename T>
    static void add_here(T *to, T value)
    {
        if (!add_one(to, value)) throw std::runtime_error("an adjoint has grown past what its integer type holds");
    }
    template <typename T>
    static void add(T *to, const T *from, size_t n, const Block &target, const Block &source)
    {
        if (!target.on_device) {
            std::vector<T> own(n);
            check(cudaMemcpy(own.data(), from, n * sizeof(T), cudaMemcpyDefault));
            for (size_t i = 0; i < n; ++i) add_here(to + i, own[i]);
            return;
        }
        T *staged = nullptr;
        if (!source.on_device) {
            check(cudaMalloc((void **)&staged, n * sizeof(T)));
            check(cudaMemcpy(staged, from, n * sizeof(T), cudaMemcpyDefault));
        }
        add_all<T><<<(unsigned int)std::min<size_t>((n + 255) / 256, 4096), 256>>>(to, staged ? staged : from, n);
        check(cudaGetLastError());
        check(cudaFree(staged));
    }
    void fill(void *to, int byte, size_t nbytes)
    {
        if (nbytes == 0) return;
        overwrite(to, nbytes);
        bool is_on_device = block_of(to).on_device;
        if (is_on_device) check(cudaMemset(to, byte, nbytes));
        else std::memset(to, byte, nbytes);
        reverses([=] { zero(shadow((char *)to), nbytes, is_on_device); });
    }

    void fill_rows(void *to, size_t pitch, int byte, size_t width, size_t height)
    {
        for (size_t row = 0; row < height; ++row) fill((char *)to + row * pitch, byte, width);
    }

    // ---- adjoints of numbers that kernels were given: brought to the host when somebody there needs one

    template <typename Number, typename T>
    T *owe(T *place) // of a number, or of several in a struct
    {
        T *memory = (T *)allocate(sizeof(T), true);
        check(cudaMemset(memory, 0, sizeof(T)));
        for (size_t at = 0; at < sizeof(T); at += sizeof(Number))
            owed.push_back({(char *)shadow(place) + at, (char *)memory + at, sizeof(Number) == sizeof(double)});
        return memory;
    }
    template <typename T>
    T *owe(T *place)
    {
        return owe<T, T>(place);
    }
    void settle()
    {
        if (has_managed) synchronize();
        for (const Owed &one : owed) {
            char bytes[8];
            check(cudaMemcpy(bytes, one.cell, one.wide ? 8 : 4, cudaMemcpyDeviceToHost));
            if (one.wide) *(double *)one.to += *(double *)bytes;
            else *(float *)one.to += *(float *)bytes;
        }
        owed.clear();
    }
    void synchronize() { check(cudaDeviceSynchronize()); }

    // ---- what the host asks for

    static const char *plainly(const signed char *text) { return (const char *)text; }
    static const char *plainly(signed char *text) { return (const char *)text; }
    template <typename T>
    static T plainly(T value)
    {
        return value;
    }
    template <typename R, typename... P, typename... A>
    static R call(R (*function)(P...), A... args)
    {
        return function((P)args...);
    }
    template <typename R, typename P, typename A, typename... B>
    static R call(R (*function)(P, ...), A first, B... rest)
    {
        return function((P)first, plainly(rest)...);
    }
    template <typename R, typename P, typename Q, typename A, typename B, typename... C>
    static R call(R (*function)(P, Q, ...), A first, B second, C... rest)
    {
        return function((P)first, (Q)second, plainly(rest)...);
    }
    template <typename... A>
    int print_text(void *to, size_t most, const void *format, A... args)
    {
        const char *how = (const char *)format;
        int length = std::snprintf(nullptr, 0, how, plainly(args)...);
        most = std::min(most, (size_t)length + 1);
        if (most > 0) takes((char *)to, most);
        std::snprintf((char *)to, most, how, plainly(args)...);
        return length;
    }
    // What the library writes has no derivative.
    template <typename T>
    void takes(T *to, size_t bytes = sizeof(T), size_t count = 1)
    {
        if (to == nullptr) return;
        overwrite(to, bytes * count);
        reverses([=] {
            const Block &block = block_of(to);
            size_t at = (char *)to - block.start;
            if (block.shadow != nullptr) zero(block.shadow + at, bytes * count, block.on_device);
        });
    }
    static void fails(const void *text = "an exception") { throw std::runtime_error((const char *)text); }
    static int current_device()
    {
        int device = 0;
        check(cudaGetDevice(&device));
        return device;
    }
    template <typename T>
    void property(T cudaDeviceProp::*which, int device, void *to)
    {
        cudaDeviceProp found;
        check(cudaGetDeviceProperties(&found, device));
        takes((char *)to, sizeof(T));
        std::memcpy(to, &(found.*which), sizeof(T));
    }
    static int device_count()
    {
        int count = 0;
        check(cudaGetDeviceCount(&count));
        return count;
    }
    static long long nanoseconds()
    {
        auto now = std::chrono::steady_clock::now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    }

    // Events: when the host came there, with all done that it had asked for.
    long long event()
    {
        times.push_back(0);
        return (long long)times.size();
    }
    template <typename T>
    void record_event(T number)
    {
        synchronize();
        if ((long long)number > 0) times[(long long)number - 1] = nanoseconds();
    }
    template <typename T>
    float elapsed(T from, T to)
    {
        return (times[(long long)to - 1] - times[(long long)from - 1]) * 1e-6f;
    }

    // ---- streams of C++, which are the program's own

    template <typename S, typename T>
    static void print(S *stream, T value)
    {
        *(std::ostream *)stream << plainly(value);
    }
    template <typename S>
    static void print_char(S *stream, int value)
    {
        *(std::ostream *)stream << (char)value;
    }
    template <std::ostream &manipulator(std::ostream &), typename S>
    static void print_by(S *stream)
    {
        *(std::ostream *)stream << manipulator;
    }
    template <std::ios_base &manipulator(std::ios_base &), typename S>
    static void print_by(S *stream)
    {
        *(std::ostream *)stream << manipulator;
    }
    template <typename S>
    static long digits(S *stream, long count)
    {
        return ((std::ostream *)stream)->precision(count);
    }
    template <typename S>
    static long width(S *stream, long count)
    {
        return ((std::ostream *)stream)->width(count);
    }
    template <typename S, typename T>
    static void print_format(S *stream, const T *format) // digits, a width or what fills it
    {
        const int *parts = (const int *)format;
        if (parts[0] == 1) ((std::ostream *)stream)->precision(parts[1]);
        if (parts[0] == 2) ((std::ostream *)stream)->width(parts[1]);
        if (parts[0] == 3) ((std::ostream *)stream)->fill((char)parts[1]);
    }

    // ---- the reverse

    void backward()
    {
        std::vector<Saved> last;
        for (auto &[start, block] : blocks) {
            if (block.own || block.writers == 0) continue;
            if (block.nbytes != unknown) {
                record(nullptr, false);
                save(block.start, block.nbytes, block.on_device);
                last.push_back(std::move(steps.back().saved.back()));
                steps.pop_back();
                continue;
            }
            for (size_t k = 0, count = steps.size(); k < count; ++k)
                for (size_t s = 0; s < steps[k].saved.size(); ++s) {
                    char *at = steps[k].saved[s].start;
                    if (&block_of(at) != &block) continue;
                    record(nullptr, false);
                    save(at, steps[k].saved[s].nbytes, false);
                    last.push_back(std::move(steps.back().saved.back()));
                    steps.pop_back();
                }
        }
        for (; !steps.empty(); steps.pop_back()) {
            Step &step = steps.back();
            if (!step.looks_back) put_back(step);
            if (step.reverse) step.reverse();
            if (step.runs_again || step.looks_back) put_back(step);
        }
        settle();
        for (const Saved &saved : last) put_back(saved);
    }
};
