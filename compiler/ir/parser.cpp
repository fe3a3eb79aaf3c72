#include "compiler/ir/text.h"

#include "compiler/ops/op_table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <charconv>

namespace zerocc {
namespace {

// A recursive descent over the characters, following the grammar of README.md. The first error is kept and
// moves the cursor to the end, so that every loop ends; functions return something harmless from then on.
// Names that may be used before their line (buckets, members, places, events) are noted with their position
// and resolved when the table or the segment is complete.
class Parser {
public:
  Parser(llvm::StringRef text, const std::string &file) : text_(text), file_(file) {}

  Expected<std::unique_ptr<Module>> run() {
    expectWord("module");
    module_->name = name('@', "the module's name");
    expect('{');
    while (!error_ && peek() != '}')
      statement();
    peek();
    expect('}');
    resolveTables();
    if (!error_ && peek() != 0)
      fail("expected the end of the text, found " + found());
    if (error_)
      return *error_;
    return std::move(module_);
  }

private:
  // --- characters and words

  void failAt(size_t position, const std::string &message) {
    if (error_)
      return;
    const auto line = text_.take_front(position).count('\n') + 1;
    error_ = Error(file_ + ":" + std::to_string(line) + ": " + message);
    at_ = text_.size();
  }
  void fail(const std::string &message) { failAt(at_, message); }

  void skipBlanks(bool acrossLines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && acrossLines))
        ++at_;
      else if (text_.substr(at_).startswith("//"))
        at_ = std::min(text_.size(), text_.find('\n', at_));
      else
        return;
    }
  }
  char current() const { return at_ < text_.size() ? text_[at_] : 0; }
  char peek() {
    skipBlanks(true);
    return current();
  }
  /// The next character of this line, or 0 at its end; a closing brace ends a line too.
  char peekInLine() {
    skipBlanks(false);
    return current() == '\n' || current() == '}' ? 0 : current();
  }

  std::string found() {
    skipBlanks(false);
    if (at_ >= text_.size())
      return "the end of the text";
    if (current() == '\n')
      return "the end of the line";
    const llvm::StringRef word = text_.substr(at_).take_while(isNameCharacter);
    return quote(word.empty() ? text_.substr(at_, 1) : word);
  }

  /// Moves only when the next character is `c`: otherwise the line still ends where it ended.
  bool accept(char c) {
    const size_t start = at_;
    const bool accepted = peek() == c;
    at_ = accepted ? at_ + 1 : start;
    return accepted;
  }
  void expect(char c) {
    const size_t start = at_;
    if (!accept(c))
      failAt(start, std::string("expected '") + c + "', found " + found());
  }

  std::string takeWhile(bool (*wanted)(char), const std::string &what) {
    peek();
    const llvm::StringRef taken = text_.substr(at_).take_while(wanted);
    if (taken.empty())
      fail("expected " + what + ", found " + found());
    at_ += taken.size();
    return taken.str();
  }
  /// A keyword, op, dtype or suffix.
  std::string word(const std::string &what) {
    return takeWhile([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '-'; }, what);
  }
  void expectWord(const std::string &expected) {
    peek();
    const size_t start = at_;
    const std::string got = word("\"" + expected + "\"");
    if (got != expected)
      failAt(start, "expected \"" + expected + "\", found " + quote(got));
  }

  std::string quoted(const std::string &what) {
    if (!accept('"')) {
      fail("expected " + what + " in quotes, found " + found());
      return "";
    }
    std::string out;
    while (!error_) {
      const char c = current();
      if (c == 0 || c == '\n') {
        fail("expected '\"' at the end of " + what);
      } else if (c == '"') {
        ++at_;
        return out;
      } else if (c != '\\') {
        out += c;
        ++at_;
      } else {
        escape(out);
      }
    }
    return out;
  }
  void escape(std::string &out) {
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : 0;
    unsigned code = 0;
    if (c == '"' || c == '\\') {
      out += c;
    } else if (c == 'n') {
      out += '\n';
    } else if (c == 'x' && !text_.substr(at_ + 2, 2).getAsInteger(16, code)) {
      out += static_cast<char>(code);
      at_ += 2;
    } else {
      fail("expected \\\", \\\\, \\n or \\xNN after a backslash");
      return;
    }
    at_ += 2;
  }

  /// A text that is quoted only where it must be.
  std::string wordOrQuoted(const std::string &what) {
    return peek() == '"' ? quoted(what) : takeWhile(isNameCharacter, what);
  }

  std::string name(char sigil, const std::string &what) {
    if (!accept(sigil)) {
      fail("expected " + what + " (" + sigil + "…), found " + found());
      return "";
    }
    return current() == '"' ? quoted(what) : takeWhile(isNameCharacter, what);
  }

  // --- numbers, attributes, types

  template <typename T> bool convert(const std::string &text, T &value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
  }
  std::string numberText(const std::string &what) {
    return takeWhile([](char c) { return llvm::isAlnum(c) || c == '.' || c == '+' || c == '-'; }, what);
  }
  template <typename T> T number(const std::string &what) {
    peek();
    const size_t start = at_;
    const std::string text = numberText(what);
    T value{};
    if (!error_ && !convert(text, value))
      failAt(start, "expected " + what + ", found " + quote(text));
    return value;
  }
  /// Digits only, so that the `+` of `arena+0` stays outside.
  int64_t integer(const std::string &what) {
    peek();
    const size_t start = at_;
    const bool negative = accept('-');
    const std::string digits = takeWhile([](char c) { return llvm::isDigit(c); }, what);
    int64_t value = 0;
    if (!error_ && !convert((negative ? "-" : "") + digits, value))
      failAt(start, "expected " + what + " of 64 bits, found " + quote((negative ? "-" : "") + digits));
    return value;
  }
  int64_t offset() {
    expect('+');
    return integer("an offset");
  }

  std::vector<int64_t> integers(char open, char close, const std::string &what) {
    std::vector<int64_t> values;
    expect(open);
    if (accept(close))
      return values;
    do
      values.push_back(integer(what));
    while (accept(','));
    expect(close);
    return values;
  }

  AttributeValue attributeValue() {
    if (peek() == '"')
      return quoted("a text");
    if (peek() == '[')
      return integers('[', ']', "an integer");
    const llvm::StringRef rest = text_.substr(at_);
    const llvm::StringRef digits = rest.drop_while([](char c) { return c == '-'; });
    const llvm::StringRef behind = digits.drop_while([](char c) { return llvm::isDigit(c); });
    const bool isReal =
        digits.empty() || !llvm::isDigit(digits[0]) || behind.startswith(".") || behind.startswith("e");
    if (isReal)
      return number<double>("a value");
    return integer("an integer");
  }
  void attributeEntry(Attributes &attributes) {
    peek();
    const size_t start = at_;
    const std::string key = wordOrQuoted("an attribute's name");
    expect('=');
    AttributeValue value = attributeValue();
    if (attributes.has(key))
      failAt(start, "attribute " + quote(key) + " is given twice");
    else if (!error_)
      attributes.set(key, std::move(value));
  }

  DType dtype() {
    peek();
    const size_t start = at_;
    const std::string text = word("a dtype");
    const std::optional<DType> dtype = dtypeFromName(text);
    if (!error_ && !dtype)
      failAt(start, "expected a dtype, found " + quote(text));
    return dtype.value_or(DType::f32);
  }
  TensorType type() {
    TensorType type{dtype(), {}};
    const size_t start = at_;
    const std::vector<int64_t> dims = integers('[', ']', "a dim");
    type.dims.assign(dims.begin(), dims.end());
    if (Status status = checkType(type); !error_ && !status)
      failAt(start, status.error().findings()[0].message);
    return type;
  }

  /// One of an enum's names, in the order of its values.
  template <typename Enum> Enum choice(llvm::ArrayRef<const char *> names, const std::string &what) {
    peek();
    const size_t start = at_;
    const std::string text = word(what);
    std::string known;
    for (size_t i = 0; i < names.size(); ++i) {
      if (text == names[i])
        return static_cast<Enum>(i);
      known += (i ? ", " : "") + std::string(names[i]);
    }
    failAt(start, "expected " + what + " (" + known + "), found " + quote(text));
    return static_cast<Enum>(0);
  }
  Region region() { return choice<Region>({"persistent", "carried", "arena", "inputs"}, "a region"); }

  // --- suffixes

  struct Suffix {
    const char *name;
    llvm::function_ref<void()> read; // what follows the name
  };
  /// Reads the suffixes of one line, which come in the order of `known`, each at most once.
  void suffixes(std::initializer_list<Suffix> known) {
    auto next = known.begin();
    while (!error_ && peekInLine() != 0 && current() != '{') {
      const size_t start = at_;
      const std::string text = word("a suffix");
      auto suffix = llvm::find_if(known, [&](const Suffix &s) { return text == s.name; });
      if (suffix == known.end()) {
        std::string names;
        for (const Suffix &s : known)
          names += std::string(names.empty() ? "" : ", ") + s.name;
        return failAt(start, "unknown suffix " + quote(text) + ", expected (in this order) " + names);
      }
      if (suffix < next)
        return failAt(start,
                      "suffix " + quote(text) + " must stand once, and before " + quote((next - 1)->name));
      suffix->read();
      next = suffix + 1;
    }
  }

  // --- tables

  void statement() {
    const size_t start = at_;
    const std::string keyword = word("a keyword");
    if (keyword == "segment")
      return segment();
    if (inSegments_ && !error_)
      return failAt(start, "expected \"segment\" or '}' after the first segment, found " + quote(keyword));
    if (keyword == "mesh")
      mesh();
    else if (keyword == "fact")
      attributeEntry(module_->facts);
    else if (keyword == "region")
      regionSize();
    else if (keyword == "input")
      input();
    else if (keyword == "constant")
      constant();
    else if (keyword == "param")
      parameter();
    else if (keyword == "bucket")
      bucket();
    else if (keyword == "storage")
      storage();
    else
      failAt(start, "unknown keyword " + quote(keyword) +
                        ", expected mesh, fact, region, input, constant, param, bucket, storage or segment");
    if (peekInLine() != 0)
      fail("expected the end of the line, found " + found());
  }

  int64_t count(const std::string &what) {
    const size_t start = at_ + 1;
    expect('=');
    const int64_t value = integer(what);
    if (!error_ && (value < 1 || value > 1 << 20))
      failAt(start, what + " must be between 1 and 1048576, is " + std::to_string(value));
    return value;
  }
  void mesh() {
    suffixes({{"shard", [&] { module_->mesh.shard = count("shard"); }},
              {"replicate", [&] { module_->mesh.replicate = count("replicate"); }},
              {"micro_steps", [&] { module_->microSteps = count("micro_steps"); }}});
  }
  void regionSize() {
    const Region which = region();
    module_->regionBytes[static_cast<int>(which)] = integer("a number of bytes");
  }

  /// `@name : type`, and no other module-level value of that name.
  std::pair<std::string, TensorType> declaration() {
    peek();
    const size_t start = at_;
    std::string text = name('@', "a name");
    if (!error_ && text.empty())
      failAt(start, "a module-level value needs a name");
    if (!error_ && module_->global(text))
      failAt(start, printName('@', text) + " is declared twice");
    expect(':');
    TensorType valueType = type();
    if (error_) // anything that does not clash
      text = "?" + std::to_string(junk_++);
    return {text, valueType};
  }

  void input() {
    auto [text, valueType] = declaration();
    Value *value = module_->addInput(text, valueType);
    Input &input = module_->inputs.back();
    suffixes(
        {{"role", [&] { expect('='), input.role = wordOrQuoted("a role"); }},
         {"of", [&] { expect('='), input.of = wordOrQuoted("an input's name"); }},
         {"shift", [&] { expect('='), input.shift = integer("a number of positions"); }},
         {"range",
          [&] {
            expect('=');
            peek();
            const size_t start = at_;
            const std::vector<int64_t> bounds = integers('[', ')', "a bound");
            if (!error_ && bounds.size() != 2)
              return failAt(start, "a range has two bounds, [low,high)");
            input.hasRange = true;
            if (!error_)
              input.low = bounds[0], input.high = bounds[1];
          }},
         {"ignore", [&] { expect('='), input.hasIgnore = true, input.ignoreIndex = integer("a label"); }},
         {"place", [&] { expect('='), place(value); }}});
  }

  void constant() {
    auto [text, valueType] = declaration();
    expect('=');
    Value *value = module_->addConstant(text, valueType, source(valueType, true));
    suffixes({{"place", [&] { expect('='), place(value); }}});
  }

  void parameter() {
    auto [text, valueType] = declaration();
    const DataSource data = peekInLine() == '=' && accept('=') ? source(valueType, false) : DataSource();
    Value *value = module_->addParameter(text, valueType, data);
    Parameter &parameter = module_->parameters.back();
    const int index = static_cast<int>(module_->parameters.size()) - 1;
    suffixes({{"group", [&] { expect('='), parameter.group = wordOrQuoted("a parameter group"); }},
              {"frozen", [&] { parameter.trainable = false; }},
              {"tied", [&] { parameter.tiedNote = true; }},
              {"bucket",
               [&] {
                 expect('=');
                 peek();
                 const size_t start = at_;
                 pendingBuckets_.push_back({start, index, name('#', "a bucket")});
                 parameter.bucketOffset = offset();
               }},
              {"place", [&] { expect('='), place(value); }}});
  }

  void storage() {
    auto [text, valueType] = declaration();
    const DataSource data = peekInLine() == '=' && accept('=') ? source(valueType, false) : DataSource();
    Value *value = module_->addStorage(text, valueType, Region::persistent, data);
    Storage &storage = module_->storages.back();
    suffixes({{"region", [&] { expect('='), storage.region = region(); }},
              {"place", [&] { expect('='), place(value); }}});
  }

  void bucket() {
    peek();
    const size_t start = at_;
    Bucket &bucket = module_->buckets.emplace_back();
    const int index = static_cast<int>(module_->buckets.size()) - 1;
    bucket.name = name('#', "a bucket's name");
    if (!error_ && !bucketIndex_.try_emplace(bucket.name, index).second)
      return failAt(start, printName('#', bucket.name) + " is declared twice");
    expect(':');
    bucket.fetchDtype = dtype();
    suffixes({{"grad", [&] { expect('='), bucket.gradientDtype = dtype(); }},
              {"parameters",
               [&] {
                 expect('=');
                 bucket.parameters = choice<ParameterField>({"whole", "kept", "refetched"}, "a field");
               }},
              {"gradients",
               [&] {
                 expect('=');
                 bucket.gradients = choice<GradientField>({"boundary", "micro-step"}, "a field");
               }},
              {"states",
               [&] {
                 expect('='), bucket.states = choice<StateField>({"whole", "sharded"}, "a field");
               }},
              {"frozen", [&] { bucket.trainable = false; }},
              {"padded", [&] { expect('='), bucket.paddedElements = integer("a number of elements"); }}});
    expect('{');
    while (!error_ && !accept('}')) {
      const size_t memberStart = at_;
      std::string member = name('@', "a member or '}'");
      pendingMembers_.push_back({memberStart, index, std::move(member), offset()});
    }
  }

  DataSource source(const TensorType &valueType, bool mayBeInit) {
    DataSource out;
    if (peek() == '[') {
      out.kind = DataSource::Kind::inlineBytes;
      out.bytes = inlineData(valueType);
      return out;
    }
    const std::string expected = std::string("[…], initializer(\"…\")") + (mayBeInit ? " or init" : "");
    const size_t start = at_;
    const std::string kind = word(expected);
    if (kind == "initializer") {
      out.kind = DataSource::Kind::initializer;
      expect('(');
      out.initializer = quoted("an initializer's name");
      expect(')');
    } else if (kind != "init" || !mayBeInit) {
      failAt(start, "expected " + expected + ", found " + quote(kind));
    }
    return out;
  }
  std::string inlineData(const TensorType &valueType) {
    const size_t start = at_;
    std::string bytes;
    int64_t elements = 0;
    expect('[');
    if (!accept(']')) {
      do {
        bytes += element(valueType.dtype);
        ++elements;
      } while (accept(','));
      expect(']');
    }
    if (!error_ && elements != valueType.elements())
      failAt(start, print(valueType) + " has " + std::to_string(valueType.elements()) + " elements, " +
                        std::to_string(elements) + " are written");
    return bytes;
  }
  std::string element(DType dtype) {
    if (dtype == DType::boolean)
      return encodeElement(dtype, static_cast<int64_t>(choice<int>({"false", "true"}, "a bool")));
    if (dtype == DType::f32) // not through double, which would round twice
      return encodeElement(dtype, static_cast<double>(number<float>("a number")));
    if (isFloat(dtype))
      return encodeElement(dtype, number<double>("a number"));
    peek();
    const size_t start = at_;
    const int64_t value = integer("an integer");
    std::string bytes = encodeElement(dtype, value);
    if (!error_ && decodeElement(dtype, bytes) != std::to_string(value))
      failAt(start, std::to_string(value) + " does not fit " + std::string(dtypeName(dtype)));
    return bytes;
  }

  // --- places and names used before their line

  struct PendingPlace {
    size_t position;
    Value *value;
    char sigil;
    std::string key;
  };
  void place(Value *value) {
    peek();
    const size_t start = at_;
    if (accept('_'))
      return;
    if (current() == '@' || current() == '%') {
      const char sigil = current();
      value->place.kind = Place::Kind::value;
      pendingPlaces_.push_back({start, value, sigil, sigil == '@' ? name('@', "a value") : localKey()});
    } else {
      value->place.region = region();
      value->place.kind = Place::Kind::region;
    }
    value->place.offset = offset();
  }
  void resolvePlaces() {
    for (const PendingPlace &pending : pendingPlaces_) {
      const Value *base = pending.sigil == '@' ? module_->global(pending.key) : locals_.lookup(pending.key);
      if (!base)
        return failAt(pending.position, "place names a value that is not defined here");
      pending.value->place.base = base;
    }
    pendingPlaces_.clear();
  }

  struct PendingBucket {
    size_t position;
    int parameter;
    std::string bucket;
  };
  struct PendingMember {
    size_t position;
    int bucket;
    std::string parameter;
    int64_t begin;
  };
  /// After the last table line: everything the tables say of each other.
  void resolveTables() {
    if (error_ || inSegments_)
      return;
    inSegments_ = true;
    llvm::StringMap<int> parameters;
    for (size_t i = 0; i < module_->parameters.size(); ++i)
      parameters[module_->parameters[i].value->name] = static_cast<int>(i);
    for (const PendingBucket &pending : pendingBuckets_) {
      auto found = bucketIndex_.find(pending.bucket);
      if (found == bucketIndex_.end())
        return failAt(pending.position, printName('#', pending.bucket) + " is not a bucket");
      module_->parameters[pending.parameter].bucket = found->second;
    }
    for (const PendingMember &pending : pendingMembers_) {
      auto found = parameters.find(pending.parameter);
      if (found == parameters.end())
        return failAt(pending.position, printName('@', pending.parameter) + " is not a parameter");
      const int64_t elements = module_->parameters[found->second].value->type.elements();
      int64_t end = 0;
      if (__builtin_add_overflow(pending.begin, elements, &end))
        return failAt(pending.position, "offset " + std::to_string(pending.begin) + " is too large");
      Bucket &bucket = module_->buckets[pending.bucket];
      bucket.ranges.push_back({found->second, pending.begin, end});
      bucket.elements += elements;
    }
    resolvePlaces();
  }

  // --- segments

  /// The key of a `%` name in locals_: numbers of unnamed values are apart from the quoted name of the same
  /// digits.
  std::string localKey() {
    const size_t start = at_;
    const std::string text = name('%', "a value");
    if (!error_ && text.empty())
      failAt(start, "a value needs a name");
    return (isNumbered(start, text) ? "n" : "v") + text;
  }
  bool isNumbered(size_t sigilAt, llvm::StringRef text) const {
    return isAllDigits(text) && sigilAt + 1 < text_.size() && text_[sigilAt + 1] != '"';
  }

  Value *use() {
    const char sigil = peek();
    const size_t start = at_;
    if (sigil != '@' && sigil != '%') {
      fail("expected a value (%… or @…), found " + found());
      return nullptr;
    }
    const std::string key = sigil == '@' ? name('@', "a value") : localKey();
    Value *value = sigil == '@' ? module_->global(key) : locals_.lookup(key);
    if (!error_ && !value)
      failAt(start, text_.slice(start, at_).str() +
                        (sigil == '@' ? " is not declared" : " is not defined before its use"));
    return value;
  }

  void segment() {
    resolveTables();
    peek();
    const size_t start = at_;
    const std::string text = name('@', "a segment's name");
    if (!error_ && module_->graph(text))
      return failAt(start, "segment " + printName('@', text) + " is written twice");
    if (error_)
      return;
    Graph &graph = module_->addGraph(text);
    locals_.clear();
    pendingAfter_.clear();
    expect('{');
    while (!error_ && peek() != '}') {
      if (text_.substr(at_).take_while(isNameCharacter) == "yield") {
        yield(graph);
        break;
      }
      node(graph);
    }
    peek();
    expect('}');
    resolvePlaces();
    for (const PendingAfter &pending : pendingAfter_) {
      Value *value = locals_.lookup(pending.key);
      if (!error_ && !value)
        failAt(pending.position, "after= names a value that is not defined in this segment");
      else if (!error_)
        pending.node->after.push_back(value->definition);
    }
  }

  void yield(Graph &graph) {
    expectWord("yield");
    do {
      std::string text = wordOrQuoted("a result's name");
      expect('=');
      graph.results.push_back({std::move(text), use()});
    } while (accept(','));
  }

  struct Result {
    size_t position;
    std::string key;
    TensorType type;
  };
  void node(Graph &graph) {
    llvm::SmallVector<Result, 3> written;
    const size_t start = at_;
    if (current() == '%') {
      do {
        peek();
        const size_t position = at_;
        std::string key = localKey();
        expect(':');
        written.push_back({position, std::move(key), type()});
      } while (accept(','));
      expect('=');
    }
    peek();
    const size_t opAt = at_;
    const std::string opName = word("an op");
    const std::optional<OpKind> op = opFromText(opName);
    if (!error_ && !op)
      failAt(opAt, "unknown op " + quote(opName));
    llvm::SmallVector<Value *, 4> inputs;
    if (const char c = peekInLine(); c == '%' || c == '@') {
      do
        inputs.push_back(use());
      while (accept(','));
    }
    Attributes attributes;
    if (peekInLine() == '{') {
      expect('{');
      do
        attributeEntry(attributes);
      while (accept(','));
      expect('}');
    }
    if (error_)
      return;
    llvm::SmallVector<TensorType, 3> types;
    for (const Result &result : written)
      types.push_back(result.type);
    Node *node = graph.append(*op, inputs, types, std::move(attributes));
    nodeSuffixes(*node);
    if (!error_)
      checkResults(*node, start);
    for (auto [result, value] : llvm::zip(written, node->results)) {
      if (!error_ && !locals_.try_emplace(result.key, value).second)
        return failAt(result.position,
                      printName('%', llvm::StringRef(result.key).drop_front()) + " is defined twice");
      if (result.key[0] == 'v')
        value->name = result.key.substr(1);
    }
  }

  struct PendingAfter {
    size_t position;
    Node *node;
    std::string key;
  };
  void nodeSuffixes(Node &node) {
    suffixes({{"bucket",
               [&] {
                 expect('=');
                 peek();
                 const size_t start = at_;
                 const std::string text = name('#', "a bucket");
                 auto found = bucketIndex_.find(text);
                 if (found == bucketIndex_.end())
                   return failAt(start, printName('#', text) + " is not a bucket");
                 node.bucket = found->second;
               }},
              {"place",
               [&] {
                 expect('=');
                 const size_t start = at_;
                 size_t entries = 0;
                 do {
                   Value unwanted;
                   place(entries < node.results.size() ? node.results[entries] : &unwanted);
                   if (++entries > node.results.size())
                     break;
                 } while (accept(','));
                 if (!error_ && entries != node.results.size())
                   failAt(start, "place= needs one entry per result, of which there are " +
                                     std::to_string(node.results.size()));
               }},
              {"stream",
               [&] {
                 expect('='), node.stream = choice<Stream>({"compute", "gather", "reduce"}, "a stream");
               }},
              {"after",
               [&] {
                 expect('=');
                 do {
                   peek();
                   const size_t start = at_;
                   pendingAfter_.push_back({start, &node, localKey()});
                 } while (accept(','));
               }},
              {"loc", [&] {
                 expect('(');
                 node.location = quoted("a location");
                 expect(')');
               }}});
  }

  /// The written result types must be those of the op table's shape rule.
  void checkResults(const Node &node, size_t position) {
    const std::string op(opText(node.op));
    llvm::SmallVector<TensorType, 4> inputs;
    for (const Value *input : node.inputs)
      inputs.push_back(input->type);
    const Bucket *bucket = node.bucket >= 0 ? &module_->buckets[node.bucket] : nullptr;
    Expected<ResultTypes> types = inferTypes({node.op, inputs, node.attributes, bucket, &module_->mesh});
    if (!types)
      return failAt(position, op + ": " + types.error().findings()[0].message);
    if (types->size() != node.results.size())
      return failAt(position, op + ": the number of results is " + std::to_string(node.results.size()) +
                                  ", the op table says " + std::to_string(types->size()));
    for (auto [type, result] : llvm::zip(*types, node.results))
      if (!(type == result->type))
        return failAt(position, "result " + std::to_string(result->resultIndex) + " of " + op +
                                    " is written " + print(result->type) + ", the shape rule gives " +
                                    print(type));
  }

  llvm::StringRef text_;
  const std::string &file_;
  size_t at_ = 0;
  std::optional<Error> error_;
  std::unique_ptr<Module> module_ = std::make_unique<Module>();
  int junk_ = 0;
  bool inSegments_ = false;
  llvm::StringMap<int> bucketIndex_;
  std::vector<PendingBucket> pendingBuckets_;
  std::vector<PendingMember> pendingMembers_;
  std::vector<PendingPlace> pendingPlaces_;
  // of the segment being read
  llvm::StringMap<Value *> locals_;
  std::vector<PendingAfter> pendingAfter_;
};

} // namespace

Expected<std::unique_ptr<Module>> parseModule(llvm::StringRef text, const std::string &fileName) {
  return Parser(text, fileName).run();
}

} // namespace zerocc
