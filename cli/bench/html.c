/* Writes the HTML report: what concerns all workloads; html_section.c writes what concerns one. The page is valid XML,
 * too, so that programs can read it with a strict parser. */
#include "bench/html.h"
#include "report.css.h"
#include "text.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static void server_names(FILE *out, const struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (bench->targets[i].peer) continue;
        if (i) fputs(", ", out);
        html_text(out, bench->targets[i].server);
    }
}

static void head(FILE *out, const struct bench *bench) {
    /* This policy forbids scripts and loading, so a text from a server can do no harm. */
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "base-uri 'none'; form-action 'none'\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>dlock bench: ",
          out);
    server_names(out, bench);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", report_css_text);
}

static uint64_t all_grants(const struct bench *bench) {
    uint64_t grants = 0;
    for (size_t i = 0; i < bench->n_targets; i++)
        for (size_t k = 0; k < bench->n_cases; k++) grants += bench->targets[i].cells[k].grants;
    return grants;
}

static void violations_of(FILE *out, const struct bench *bench, size_t server, size_t k) {
    const struct bench_cell *cell = &bench->targets[server].cells[k];
    struct bench_figures figures;
    bench_figures(&bench->cases[k], cell, &figures);
    if (!figures.violations) return;
    fputs("<li>", out);
    html_text(out, bench->targets[server].server);
    fprintf(out, ", %s:", bench->cases[k].label);
    if (figures.violations > cell->stale_fences)
        fprintf(out, " two held the lock at the same time, %" PRIu64 " times", figures.violations - cell->stale_fences);
    if (cell->stale_fences)
        fprintf(out, "%s %" PRIu64 " times a fence was not greater than the one before",
                figures.violations > cell->stale_fences ? ";" : "", cell->stale_fences);
    fputs("</li>\n", out);
}

static void verdict(FILE *out, const struct bench *bench) {
    uint64_t violations = bench_violations(bench);
    char bad[HTML_COUNT], all[HTML_COUNT];
    html_count(bad, violations);
    html_count(all, all_grants(bench));
    if (!violations) {
        fprintf(out, "<p class=\"verdict good\">✓ Exclusion held: no violation in %s grants.</p>\n", all);
        return;
    }
    fprintf(out, "<div class=\"verdict bad\"><p>⚠ Exclusion was violated %s times in %s grants.</p>\n<ul>", bad, all);
    for (size_t k = 0; k < bench->n_cases; k++)
        for (size_t i = 0; i < bench->n_targets; i++) violations_of(out, bench, i, k);
    fputs("</ul></div>\n", out);
}

/* Writes which runs failed or were interrupted. */
static void remarks(FILE *out, const struct bench *bench) {
    if (bench->interrupted)
        fputs("<p class=\"verdict weak\">⚠ The run was interrupted: these are the results so far.</p>\n", out);
    bool begun = false;
    for (size_t k = 0; k < bench->n_cases; k++) {
        for (size_t i = 0; i < bench->n_targets; i++) {
            const struct bench_cell *cell = &bench->targets[i].cells[k];
            if (!cell->error_code && !cell->lost) continue;
            if (!begun) fputs("<div class=\"verdict weak\"><p>⚠ Some workloads failed.</p>\n<ul>", out);
            begun = true;
            fputs("<li>", out);
            html_text(out, bench->targets[i].server);
            fprintf(out, ", %s: ", bench->cases[k].label);
            if (cell->error_code) html_text(out, cell->error);
            if (cell->lost) fprintf(out, " (%" PRIu64 " grants were lost before their release)", cell->lost);
            fputs("</li>\n", out);
        }
    }
    if (begun) fputs("</ul></div>\n", out);
}

static void overview_cell(FILE *out, const struct bench *bench, size_t server, size_t k) {
    const struct bench_cell *cell = &bench->targets[server].cells[k];
    struct bench_figures figures;
    char median[BENCH_DURATION];
    bench_figures(&bench->cases[k], cell, &figures);
    bench_duration(median, figures.median_ns);
    if (figures.median_ns < 0 && bench->cases[k].workload->counted && figures.cpu >= 0)
        fprintf(out, "<td>%.2f %% CPU", 100 * figures.cpu);
    else
        fprintf(out, "<td>%s", figures.median_ns < 0 ? "–" : median);
    if (figures.ratio >= 0) fprintf(out, " <small>%.2f×</small>", figures.ratio);
    if (cell->samples.n && cell->samples.n < HTML_FEW) fprintf(out, " <small>of %d</small>", (int)cell->samples.n);
    if (figures.violations) fputs(" <strong class=\"bad\">⚠ violated</strong>", out);
    if (cell->error_code) fputs(" <strong class=\"bad\">⚠ failed</strong>", out);
    fputs("</td>", out);
}

static void overview(FILE *out, const struct bench *bench) {
    fputs("<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Medians\"><table>\n"
          "<caption>Medians; in small type: as a multiple of the floor, and the number of samples where there are "
          "few</caption>\n"
          "<thead><tr><th scope=\"col\">Workload</th>",
          out);
    for (size_t i = 0; i < bench->n_targets; i++) {
        fputs("<th scope=\"col\">", out);
        html_text(out, bench->targets[i].server);
        fputs("</th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t k = 0; k < bench->n_cases; k++) {
        fprintf(out, "<tr><th scope=\"row\"><a href=\"#%s\">%s</a></th>", bench->cases[k].workload->name,
                bench->cases[k].label);
        for (size_t i = 0; i < bench->n_targets; i++) overview_cell(out, bench, i, k);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- the workloads ----------------------------------------------------------------------------------------------- */

static void sections(FILE *out, const struct bench *bench) {
    struct html_group group = {.bench = bench, .highest_ratio = 1, .lowest_ratio = 1};
    for (size_t k = 0; k < bench->n_cases; k++) {
        for (size_t i = 0; i < bench->n_targets; i++) {
            struct bench_figures figures;
            bench_figures(&bench->cases[k], &bench->targets[i].cells[k], &figures);
            if (figures.ratio > group.highest_ratio) group.highest_ratio = figures.ratio;
            if (figures.ratio > 0 && figures.ratio < group.lowest_ratio) group.lowest_ratio = figures.ratio;
        }
    }
    for (; group.first < bench->n_cases; group.first += group.n) {
        const struct bench_workload *workload = bench->cases[group.first].workload;
        for (group.n = 1; group.first + group.n < bench->n_cases; group.n++)
            if (bench->cases[group.first + group.n].workload != workload) break;
        html_section(out, &group);
    }
}

/* ---- the servers ------------------------------------------------------------------------------------------------- */

static int finding(const struct dlock_finding *finding, void *arg) {
    FILE *out = arg;
    bool is_fine = finding->health == DLOCK_FINE;
    fputs(is_fine ? "<li>" : "<li><strong class=\"bad\">⚠ weak:</strong> ", out);
    html_text(out, finding->what);
    if (finding->advice) {
        fputs(" – ", out);
        html_text(out, finding->advice);
    }
    fputs("</li>\n", out);
    return 0;
}

/* Writes a server's version and settings, as `dlock doctor` finds them. No process is forked any more, so this one may
 * have a client. */
static void server(FILE *out, const struct bench_target *target) {
    struct dlock_error err = {0, ""};
    dlock_client *client = NULL;
    fputs("<h3>", out);
    html_text(out, target->server);
    fputs("</h3>\n<ul>", out);
    int rc = dlock_open(target->uri, NULL, &client, &err);
    if (rc == 0) rc = dlock_check(client, finding, out, &err);
    dlock_close(client);
    if (rc != 0) {
        fputs("<li>Its version and settings are unknown: ", out);
        html_text(out, err.message[0] ? err.message : dlock_strerror(rc));
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}

static void peer(FILE *out, const struct bench_target *target) {
    fputs("<h3>", out);
    html_text(out, target->server);
    fputs("</h3>\n<ul><li>Other software, on the same server: ", out);
    html_text(out, target->about);
    fputs("</li></ul>\n", out);
}

static void servers(FILE *out, const struct bench *bench) {
    fputs("<section id=\"servers\">\n<h2>The servers</h2>\n<p>Their settings, which also explain their speed; "
          "<code>dlock doctor</code> prints the same.</p>\n<div class=\"servers\">\n",
          out);
    for (size_t i = 0; i < bench->n_targets; i++) {
        fputs("<div>", out);
        if (bench->targets[i].peer)
            peer(out, &bench->targets[i]);
        else
            server(out, &bench->targets[i]);
        fputs("</div>\n", out);
    }
    fputs("</div>\n</section>\n", out);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Returns the number of processors that this process may use: with taskset fewer than there are. */
static long usable_processors(void) {
    cpu_set_t ours;
    return sched_getaffinity(0, sizeof ours, &ours) == 0 ? CPU_COUNT(&ours) : sysconf(_SC_NPROCESSORS_ONLN);
}

/* Writes the processor's name, where /proc/cpuinfo has one, and the number of processors. */
static void processor(FILE *out) {
    char row[256];
    FILE *in = fopen("/proc/cpuinfo", "re");
    while (in && fgets(row, sizeof row, in)) {
        char *value = strchr(row, ':');
        bool is_name = strncasecmp(row, "model name", 10) == 0 || strncmp(row, "cpu\t", 4) == 0;
        if (!value || !is_name) continue;
        value[strcspn(value, "\n")] = '\0';
        html_text(out, value + 1 + strspn(value + 1, " "));
        fputs("; ", out);
        break;
    }
    if (in) fclose(in);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    fprintf(out, "%ld processor%s", online, online == 1 ? "" : "s");
    if (usable_processors() < online) fprintf(out, ", of which this run could use %ld", usable_processors());
}

static void kernel(FILE *out) {
    struct utsname name;
    if (uname(&name) != 0) return;
    html_text(out, name.sysname);
    fputc(' ', out);
    html_text(out, name.release);
    fputs(", ", out);
    html_text(out, name.machine);
}

/* Writes a word, quoted for a shell where that is necessary. */
static void shell_word(FILE *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-./:=_,@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

/* Writes the command line. In place of each URI, which may have a password, it has the server's name. */
static void command_line(FILE *out, const struct bench *bench, char *const *options, size_t n_options) {
    char *line = NULL;
    size_t size;
    FILE *words = open_memstream(&line, &size);
    if (!words) return;
    fputs("dlock bench", words);
    for (size_t i = 0; i < n_options; i++) {
        bool labels = strncmp(options[i], "--la", 4) == 0; /* getopt_long() accepts abbreviated options */
        if (labels && !strchr(options[i], '=')) i++;
        if (labels) continue;
        fputc(' ', words);
        shell_word(words, options[i]);
    }
    for (size_t i = 0; i < bench->n_targets; i++)
        if (!bench->targets[i].peer) fprintf(words, " %s:…", bench->targets[i].server);
    fclose(words);
    if (line) html_text(out, line);
    free(line);
}

/* Writes a warning if there were more workers than processors: their samples contain waits for a processor. */
static void crowding(FILE *out, const struct bench *bench) {
    int most = 0;
    for (size_t k = 0; k < bench->n_cases; k++) {
        int workers = bench->cases[k].processes * bench->cases[k].threads;
        if (workers > most) most = workers;
    }
    if (most <= usable_processors()) return;
    fprintf(
        out,
        "<p>Up to %d workers, the servers on this machine and all other programs shared the processors: the durations "
        "include the time until a process was scheduled. Compare figures within this page only.</p>\n",
        most);
}

static void date(FILE *out) {
    char text[64] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
    fputs(text, out);
}

static void run(FILE *out, const struct bench *bench, char *const *options, size_t n_options) {
    fputs("<section id=\"run\">\n<h2>The run</h2>\n<dl>\n<dt>Command</dt><dd><code>", out);
    command_line(out, bench, options, n_options);
    fputs("</code></dd>\n<dt>Ended</dt><dd>", out);
    date(out);
    fprintf(out, "</dd>\n<dt>Rounds</dt><dd>%d; %.6g s per server in all, plus the time of crash and renewal</dd>\n",
            bench->rounds, (double)bench->time_ms / 1000);
    fprintf(out, "<dt>dlock</dt><dd>%s</dd>\n<dt>Processor</dt><dd>", dlock_version());
    processor(out);
    fputs("</dd>\n<dt>System</dt><dd>", out);
    kernel(out);
    fputs("</dd>\n</dl>\n", out);
    crowding(out, bench);
    fputs("</section>\n", out);
}

/* Writes the output of --json as a data block. <, > and & are escaped, so that no text in it can end the element. */
static void data(FILE *out, const struct bench *bench) {
    char *json = NULL;
    size_t size;
    FILE *in = open_memstream(&json, &size);
    if (in) {
        bench_json(bench, in);
        fclose(in);
    }
    fputs("<script type=\"application/json\" id=\"data\">", out);
    for (const char *at = json; at && *at; at++) {
        if (strchr("<>&", *at))
            fprintf(out, "\\u%04x", (unsigned)*at);
        else
            fputc(*at, out);
    }
    fputs("</script>\n", out);
    free(json);
}

void bench_html(FILE *out, const struct bench *bench, char *const *options, size_t n_options) {
    head(out, bench);
    fputs("<header>\n<h1>Locks on ", out);
    server_names(out, bench);
    fprintf(out, "</h1>\n<p>dlock %s, <time>", dlock_version());
    date(out);
    fputs("</time>, ", out);
    processor(out);
    fputs("</p>\n</header>\n<main>\n", out);
    html_opening(out, bench);
    verdict(out, bench);
    remarks(out, bench);
    overview(out, bench);
    fputs(
        "<p class=\"about\">In the charts of durations, each shape shows how often a duration occurred, on a "
        "logarithmic "
        "axis that all charts of a workload share. Each shape is scaled to its own peak. The thick line is the median, "
        "the dashed line the 99th percentile, the small circle the longest. The thin outline is the floor: the "
        "durations of a minimal client of the same server. Fewer than 30 samples are drawn as dots.</p>\n",
        out);
    sections(out, bench);
    servers(out, bench);
    run(out, bench, options, n_options);
    fputs("</main>\n", out);
    data(out, bench);
    fputs("</body>\n</html>\n", out);
}
