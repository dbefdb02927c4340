/* Where buffers were allocated: "file.py:12" of the calling Python code, while set_origins("line") is on; with "stack" the frames that called it, too.
 *
 * A Buffer's origin is that str, or of a stack a tuple of it and of the tuple of its frames' texts. For Go it is a number either way: a stack is one interned
 * text. */
#include "lane.h"
#include "docs_calls.h"
#include "_cgo_export.h"

enum tm_origins tm_origins;

static PyObject *mode_names[3]; /* interned, by enum tm_origins */

/* The texts of the lines seen last, by code object and line: making one costs ten times as much as finding it. An entry keeps its code object, so
 * that the address cannot become another's. */
enum { REMEMBERED = 256 };
static struct {
	PyCodeObject *code;
	int line;
	PyObject *text;
	uint32_t number;
} remembered[REMEMBERED];

/* This package, and the machinery of the host frameworks that are plugged in: a tuple of folders, each with its last slash; NULL: none yet. */
static PyObject *skipped;

bool tm_code_is_within(PyCodeObject *code, PyObject *folders)
{
	Py_ssize_t length;
	const char *name = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
	if (!name) {
		PyErr_Clear();
		return false;
	}
	for (Py_ssize_t i = 0, count = folders ? PyTuple_GET_SIZE(folders) : 0; i < count; i++) {
		Py_ssize_t its;
		const char *folder = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(folders, i), &its); /* cannot fail: tm_check_folders has asked */
		if (its <= length && !memcmp(name, folder, (size_t)its)) return true;
	}
	return false;
}

/* Whether the code is of this package, or of a host's machinery: then its caller is what a person wants to know. */
bool tm_code_is_machinery(PyCodeObject *code) { return tm_code_is_within(code, skipped); }

PyFrameObject *tm_calling_frame(void)
{
	PyFrameObject *frame = PyEval_GetFrame();
	Py_XINCREF(frame);
	while (frame) {
		PyCodeObject *code = PyFrame_GetCode(frame);
		bool machinery = tm_code_is_machinery(code);
		Py_DECREF(code);
		if (!machinery) return frame;
		PyFrameObject *back = PyFrame_GetBack(frame);
		if (!back) return frame; /* nobody else: then the outermost */
		Py_DECREF(frame);
		frame = back;
	}
	return NULL;
}

/* A name as a text that is UTF-8 and one line: where accounting is on, an allocation must not fail because of a file's name. What is no UTF-8 is escaped, and so
 * are ends of lines, which stand between the frames of a stack. Of a very long one the end is shown, if `end`, else the beginning. */
PyObject *tm_name_text(PyObject *name, bool end)
{
	enum { LONGEST = 1000 };
	if (TM_LIKELY(PyUnicode_IS_ASCII(name) && PyUnicode_GET_LENGTH(name) <= LONGEST && !memchr(PyUnicode_1BYTE_DATA(name), '\n', (size_t)PyUnicode_GET_LENGTH(name))))
		return Py_NewRef(name);
	PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace");
	PyObject *text = bytes ? PyUnicode_FromEncodedObject(bytes, "utf-8", NULL) : NULL;
	Py_XDECREF(bytes);
	if (text && PyUnicode_FindChar(text, '\n', 0, PyUnicode_GET_LENGTH(text), 1) >= 0) {
		PyObject *newline = PyUnicode_FromString("\n"), *escaped = PyUnicode_FromString("\\n");
		Py_XSETREF(text, newline && escaped ? PyUnicode_Replace(text, newline, escaped, -1) : NULL);
		Py_XDECREF(newline);
		Py_XDECREF(escaped);
	}
	if (!text) return NULL;
	Py_ssize_t length = PyUnicode_GET_LENGTH(text);
	if (length <= LONGEST) return text;
	PyObject *part = end ? PyUnicode_Substring(text, length - LONGEST, length) : PyUnicode_Substring(text, 0, LONGEST);
	Py_DECREF(text);
	PyObject *marked = part ? PyUnicode_FromFormat(end ? "...%U" : "%U...", part) : NULL;
	Py_XDECREF(part);
	return marked;
}

/* "file.py:12". */
static PyObject *text_of(PyCodeObject *code, int line)
{
	PyObject *name = tm_name_text(code->co_filename, true);
	PyObject *text = name ? PyUnicode_FromFormat("%U:%d", name, line) : NULL;
	Py_XDECREF(name);
	return text;
}

static int line_now(PyObject **text, uint32_t *number)
{
	PyFrameObject *frame = tm_calling_frame();
	if (!frame) return 0; /* called by C alone */
	PyCodeObject *code = PyFrame_GetCode(frame);
	int line = PyFrame_GetLineNumber(frame);
	Py_DECREF(frame);
	size_t place = (((uintptr_t)code >> 4) * 31 + (size_t)line) % REMEMBERED;
	if (remembered[place].code != code || remembered[place].line != line) {
		PyObject *made = text_of(code, line);
		int64_t id = made ? tm_intern(made, "origin") : -1;
		if (id < 0) {
			Py_XDECREF(made);
			Py_DECREF(code);
			return -1;
		}
		PyCodeObject *code_before = remembered[place].code;
		PyObject *text_before = remembered[place].text;
		remembered[place].code = code; /* keeps the reference */
		remembered[place].text = Py_NewRef(made);
		remembered[place].line = line;
		remembered[place].number = (uint32_t)id;
		*text = made;
		*number = (uint32_t)id;
		Py_XDECREF(code_before); /* last: weak references to a code object have callbacks */
		Py_XDECREF(text_before);
		return 0;
	}
	Py_DECREF(code);
	*text = Py_NewRef(remembered[place].text);
	*number = remembered[place].number;
	return 0;
}

/* ---- stacks */

enum { MOST_FRAMES = 32, REMEMBERED_STACKS = 256, LONGEST_STACK = 16 << 10 };

/* A frame that runs: the place in its code tells more than its line, and is found without looking the line up. */
typedef struct tm_place {
	PyCodeObject *code;
	int at; /* PyFrame_GetLasti */
} tm_place;

/* A stack that was seen lately, as a line above. It keeps its code objects. */
typedef struct tm_seen_stack {
	PyObject *origin;
	uint32_t number;
	int depth;
	tm_place places[];
} tm_seen_stack;

static tm_seen_stack *seen_stacks[REMEMBERED_STACKS]; /* malloc'ed */

/* The frames that called, the innermost first and without machinery; where there is nothing else, the outermost. Their code objects are borrowed: the frames run as
 * long as this function's caller does. */
static int collect_places(tm_place places[MOST_FRAMES])
{
	int depth = 0;
	PyFrameObject *frame = PyEval_GetFrame();
	Py_XINCREF(frame);
	while (frame && depth < MOST_FRAMES) {
		PyCodeObject *code = PyFrame_GetCode(frame);
		PyFrameObject *back = PyFrame_GetBack(frame);
		if (!tm_code_is_machinery(code) || (!back && !depth)) places[depth++] = (tm_place){code, PyFrame_GetLasti(frame)};
		Py_DECREF(code); /* the frame has it, too */
		Py_DECREF(frame);
		frame = back;
	}
	Py_XDECREF(frame);
	return depth;
}

static size_t hash_places(const tm_place *places, int depth)
{
	uint64_t hash = 0;
	for (int i = 0; i < depth; i++) hash = (hash ^ ((uintptr_t)places[i].code >> 4) ^ ((uint64_t)(uint32_t)places[i].at << 32)) * 0x9e3779b97f4a7c15u;
	return (size_t)(hash >> 32) % REMEMBERED_STACKS;
}

static bool is_stack(const tm_seen_stack *seen, const tm_place *places, int depth)
{
	if (!seen || seen->depth != depth) return false;
	for (int i = 0; i < depth; i++)
		if (seen->places[i].code != places[i].code || seen->places[i].at != places[i].at) return false;
	return true;
}

/* "file.py:12 function" */
static PyObject *frame_text(const tm_place *place)
{
	PyObject *line = text_of(place->code, PyCode_Addr2Line(place->code, place->at)), *function = line ? tm_name_text(place->code->co_qualname, false) : NULL;
	PyObject *text = function ? PyUnicode_FromFormat("%U %U", line, function) : NULL;
	Py_XDECREF(function);
	Py_XDECREF(line);
	return text;
}

/* The texts of the frames; the outermost ones are left out where all together would be too long. */
static PyObject *frame_texts(const tm_place *places, int depth)
{
	PyObject *texts[MOST_FRAMES];
	Py_ssize_t length = 0;
	int count = 0;
	bool failed = false;
	while (count < depth && !failed) {
		Py_ssize_t more;
		PyObject *text = frame_text(&places[count]);
		failed = !text || !PyUnicode_AsUTF8AndSize(text, &more);
		if (!failed) length += more + 1;
		if (failed || (count && length > LONGEST_STACK)) {
			Py_XDECREF(text);
			break;
		}
		texts[count++] = text;
	}
	PyObject *tuple = failed ? NULL : PyTuple_New(count);
	for (int i = 0; i < count; i++) {
		if (tuple)
			PyTuple_SET_ITEM(tuple, i, texts[i]);
		else
			Py_DECREF(texts[i]);
	}
	return tuple;
}

/* The origin of a stack that is seen for the first time, or again after long: NULL with an exception. */
static PyObject *make_origin(const tm_place *places, int depth, uint32_t *number)
{
	PyObject *line = text_of(places[0].code, PyCode_Addr2Line(places[0].code, places[0].at)), *frames = line ? frame_texts(places, depth) : NULL, *origin = NULL;
	int64_t id = frames ? tm_intern(line, "origin") : -1;
	if (id >= 0) {
		PyObject *newline = PyUnicode_FromString("\n"), *joined = newline ? PyUnicode_Join(newline, frames) : NULL;
		id = joined ? tm_intern_stack(joined, (uint32_t)id) : -1;
		Py_XDECREF(joined);
		Py_XDECREF(newline);
	}
	if (id >= 0 && (origin = PyTuple_Pack(2, line, frames))) *number = (uint32_t)id;
	Py_XDECREF(frames);
	Py_XDECREF(line);
	return origin;
}

/* Without memory for it, a stack is not remembered, and no harm is done. */
static void remember(size_t at, const tm_place *places, int depth, PyObject *origin, uint32_t number)
{
	tm_seen_stack *seen = malloc(sizeof *seen + (size_t)depth * sizeof *places), *before = seen_stacks[at];
	if (!seen) return;
	seen->origin = Py_NewRef(origin);
	seen->number = number;
	seen->depth = depth;
	for (int i = 0; i < depth; i++) seen->places[i] = (tm_place){(PyCodeObject *)Py_NewRef(places[i].code), places[i].at};
	seen_stacks[at] = seen;
	if (!before) return;
	for (int i = 0; i < before->depth; i++) Py_DECREF(before->places[i].code); /* last: their callbacks may come here, too */
	Py_DECREF(before->origin);
	free(before);
}

static int stack_now(PyObject **origin, uint32_t *number)
{
	tm_place places[MOST_FRAMES];
	int depth = collect_places(places);
	if (!depth) return 0; /* called by C alone */
	size_t at = hash_places(places, depth);
	if (TM_LIKELY(is_stack(seen_stacks[at], places, depth))) {
		*origin = Py_NewRef(seen_stacks[at]->origin);
		*number = seen_stacks[at]->number;
		return 0;
	}
	PyObject *made = make_origin(places, depth, number);
	if (!made) return -1;
	*origin = made;
	remember(at, places, depth, made, *number);
	return 0;
}

int tm_origin_now(PyObject **origin, uint32_t *number)
{
	*origin = NULL;
	*number = 0;
	return tm_origins == TM_ORIGINS_STACK ? stack_now(origin, number) : line_now(origin, number);
}

uint32_t tm_asker_slow(void)
{
	PyObject *origin;
	uint32_t number;
	if (tm_origin_now(&origin, &number)) { /* no memory: then it is not known */
		PyErr_Clear();
		return 0;
	}
	Py_XDECREF(origin);
	return number;
}

PyObject *tm_origin_line(PyObject *origin)
{
	if (!origin) Py_RETURN_NONE;
	return Py_NewRef(PyTuple_Check(origin) ? PyTuple_GET_ITEM(origin, 0) : origin);
}

PyObject *tm_origin_stack(PyObject *origin)
{
	if (!origin || !PyTuple_Check(origin)) Py_RETURN_NONE;
	return Py_NewRef(PyTuple_GET_ITEM(origin, 1));
}

/* ---- the switch */

#define MODES "mode must be \"off\", \"line\" or \"stack\", not "

static int parse_mode(PyObject *mode)
{
	if (!PyUnicode_Check(mode)) {
		PyErr_Format(PyExc_TypeError, MODES "%.100s", Py_TYPE(mode)->tp_name);
		return -1;
	}
	for (int i = TM_ORIGINS_OFF; i <= TM_ORIGINS_STACK; i++)
		if (!PyUnicode_Compare(mode, mode_names[i])) return i;
	PyErr_Format(PyExc_ValueError, MODES "%R", mode);
	return -1;
}

/* Returns the mode before. Nothing can come between the two steps. */
static PyObject *change(enum tm_origins mode)
{
	enum tm_origins before = tm_origins;
	tm_origins = mode;
	if (mode != before && !tm_forked) tmSetOrigins(mode);
	return Py_NewRef(mode_names[before]);
}

static PyObject *set_origins(PyObject *module, PyObject *mode)
{
	int wanted = parse_mode(mode);
	return wanted < 0 ? NULL : change((enum tm_origins)wanted);
}

/* For who needs lines: a person who has asked for stacks keeps them. */
static PyObject *need_origins(PyObject *module, PyObject *mode)
{
	int wanted = parse_mode(mode);
	return wanted < 0 ? NULL : change(wanted > (int)tm_origins ? (enum tm_origins)wanted : tm_origins);
}

int tm_check_folders(PyObject *folders, const char *function)
{
	if (!PyTuple_Check(folders)) {
		PyErr_Format(PyExc_TypeError, "%s: a tuple of folders, not %.100s", function, Py_TYPE(folders)->tp_name);
		return -1;
	}
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders); i++) {
		PyObject *folder = PyTuple_GET_ITEM(folders, i);
		if (!PyUnicode_Check(folder)) {
			PyErr_Format(PyExc_TypeError, "%s: a folder is a str, not %.100s", function, Py_TYPE(folder)->tp_name);
			return -1;
		}
		if (!PyUnicode_AsUTF8(folder)) return -1; /* a lone surrogate, which no file's name could match */
	}
	return 0;
}

static PyObject *set_origin_skip(PyObject *module, PyObject *folders)
{
	if (tm_check_folders(folders, "set_origin_skip")) return NULL;
	Py_XSETREF(skipped, Py_NewRef(folders));
	Py_RETURN_NONE;
}

int tm_origin_init(PyObject *module)
{
	static const char *const names[] = {"off", "line", "stack"};
	for (int i = TM_ORIGINS_OFF; i <= TM_ORIGINS_STACK; i++)
		if (!(mode_names[i] = PyUnicode_InternFromString(names[i]))) return -1;
	return 0;
}

PyMethodDef tm_origin_methods[] = {
	{"set_origins", set_origins, METH_O, TM_DOC_SET_ORIGINS},
	{"need_origins", need_origins, METH_O,
		"need_origins(mode, /)\n--\n\nset_origins, unless more than this is recorded already (\"stack\" is more than \"line\"). Returns the mode before."},
	{"set_origin_skip", set_origin_skip, METH_O,
		"set_origin_skip(folders, /)\n--\n\nCode in these folders (each with its last slash) is never an origin: its caller is. This package, and the machinery of host frameworks."},
	{NULL},
};
