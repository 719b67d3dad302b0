#include "top/screen.h"

#include "cli.h"
#include "signals.h"
#include "top/rows.h"

#include <curses.h>
#include <inttypes.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <wchar.h>

#include <term.h> /* last: its macros have short names */

enum {
    FIRST_ROW = 3, /* the line of the table's heading */
    KEY_ESCAPE = 27,
    KEY_CTRL_L = 12,
    FILTER_MAX = 64
};

/* State of the screen. Only the main thread uses it. */
struct screen {
    struct watch *watch;
    enum order order;
    char filter[FILTER_MAX];
    bool typing; /* keys go into the filter */
    long top;    /* the first row that is shown */
    long rows;   /* number of rows in the table */
    bool over;   /* the user quits, or the terminal is gone */
    int sig;     /* the signal that ends this process; 0: none */
};

static SCREEN *terminal;
static int signal_fd = -1;

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* Draws one line, cut at the right edge. Shows '?' for characters that this locale cannot show and for bytes that are
 * no character. The texts are already free of control characters; this makes sure of it. */
static void draw_line(int y, const char *text, size_t bytes) {
    mbstate_t state = {0};
    int x = 0;
    while (bytes > 0 && x < COLS) {
        wchar_t wide[2] = {L'?', 0};
        size_t length = mbrtowc(&wide[0], text, bytes, &state);
        if (length == 0 || length > bytes) {
            state = (mbstate_t){0};
            wide[0] = L'?';
            length = 1;
        }
        int width = wcwidth(wide[0]);
        if (width <= 0) {
            wide[0] = L'?';
            width = 1;
        }
        if (x + width > COLS) return;
        mvaddnwstr(y, x, wide, 1);
        x += width;
        text += length;
        bytes -= length;
    }
}

static void draw_text(int y, const char *text) {
    draw_line(y, text, strlen(text));
}

static void draw_title(const struct watch *watch) {
    char line[512] = "dlock top", sum[160], shown[256] = "";
    const char *uri = uri_or_default(watch->plan->uri);
    if (dlock_uri_without_secrets(uri, shown, sizeof shown, NULL) != 0) strcpy(shown, "");
    if (watch->answered) {
        sum_text(watch->answered, sum, sizeof sum);
        snprintf(line, sizeof line, "dlock top  %s  %s", shown, sum);
    } else {
        snprintf(line, sizeof line, "dlock top  %s", shown);
    }
    attron(A_BOLD);
    draw_text(0, line);
    attroff(A_BOLD);
}

/* Draws the line that tells whether the server answers, and whether the table is from an earlier answer. */
static void draw_state(const struct watch *watch) {
    char line[640], age[64] = "";
    int64_t silent_ms = watch_silence_ms(watch);
    const struct look *last = watch->last;
    bool failed = last && last->rc != 0;
    if ((silent_ms || failed) && watch->answered) snprintf(age, sizeof age, "; the last answer is shown below");
    if (silent_ms)
        snprintf(line, sizeof line, "no answer for %" PRId64 " s%s", silent_ms / 1000, age);
    else if (failed)
        snprintf(line, sizeof line, "no answer: %s%s", last->err.message, age);
    else if (last)
        snprintf(line, sizeof line, "answered in %" PRId64 " ms, updated every %.3g s", last->ended_ms - last->began_ms,
                 (double)watch->plan->interval_ms / 1000);
    else
        snprintf(line, sizeof line, "waiting for the first answer");
    if (silent_ms || failed) attron(A_REVERSE);
    draw_text(1, line);
    attroff(A_REVERSE);
}

static void draw_keys(const struct screen *screen) {
    char line[256];
    if (screen->typing)
        snprintf(line, sizeof line, "filter: %s_", screen->filter);
    else
        snprintf(line, sizeof line, "q quit  s sort (by %s)  / filter%s%s  space update now  arrows scroll",
                 order_words[screen->order], *screen->filter ? ": " : "", screen->filter);
    draw_text(LINES - 1, line);
}

/* Draws the heading and the rows that fit, from `top` on. */
static void draw_rows(struct screen *screen, const char *text) {
    long room = LINES - 1 - FIRST_ROW - 1, last = screen->rows > room ? screen->rows - room : 0;
    if (screen->top > last) screen->top = last;
    long row = -1; /* the heading */
    for (const char *line = text; *line; row++) {
        size_t length = strcspn(line, "\n");
        int y = row < 0 ? FIRST_ROW : (int)(FIRST_ROW + 1 + row - screen->top);
        if (row < 0) attron(A_UNDERLINE);
        if (row < 0 || (row >= screen->top && y < LINES - 1)) draw_line(y, line, length);
        attroff(A_UNDERLINE);
        line += length + (line[length] == '\n');
    }
}

static void draw_table(struct screen *screen) {
    const struct look *look = screen->watch->answered;
    char *text = NULL;
    size_t size = 0;
    FILE *out = look ? open_memstream(&text, &size) : NULL;
    if (!out) return;
    const struct rows_plan plan = {screen->order, screen->filter, COLS > 60 ? (size_t)COLS / 3 : 20,
                                   screen->watch->plan->wide};
    screen->rows = rows_print(look, &plan, out);
    if (fclose(out) == 0 && screen->rows >= 0) draw_rows(screen, text);
    free(text);
}

static void draw(struct screen *screen) {
    erase();
    draw_title(screen->watch);
    if (LINES > FIRST_ROW + 1) {
        draw_state(screen->watch);
        draw_table(screen);
        draw_keys(screen);
    }
    refresh();
}

/* ---- keys and signals -------------------------------------------------------------------------------------------- */

static void type_into_filter(struct screen *screen, int key) {
    size_t length = strlen(screen->filter);
    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        screen->typing = false;
    } else if (key == KEY_ESCAPE) {
        screen->typing = false;
        screen->filter[0] = '\0';
    } else if (key == KEY_BACKSPACE || key == 127 || key == 8) {
        while (length > 0 && (screen->filter[length - 1] & 0xc0) == 0x80) length--; /* the rest of a character */
        screen->filter[length ? length - 1 : 0] = '\0';
    } else if (key >= ' ' && key < 256 && length + 1 < sizeof screen->filter) {
        screen->filter[length] = (char)key;
        screen->filter[length + 1] = '\0';
    }
    screen->top = 0;
}

static void scroll_by(struct screen *screen, long by) {
    screen->top = screen->top + by > 0 ? screen->top + by : 0; /* draw_rows() bounds it above */
}

static void act_on(struct screen *screen, int key) {
    long page = LINES > FIRST_ROW + 3 ? LINES - FIRST_ROW - 3 : 1;
    switch (key) {
    case 'q':
    case 'Q': screen->over = true; break;
    case 's': screen->order = (screen->order + 1) % ORDERS; break;
    case '/': screen->typing = true; break;
    case KEY_ESCAPE: screen->filter[0] = '\0'; break;
    case ' ': watch_hurry(screen->watch); break;
    case KEY_CTRL_L: clearok(curscr, TRUE); break;
    case KEY_UP: scroll_by(screen, -1); break;
    case KEY_DOWN: scroll_by(screen, 1); break;
    case KEY_PPAGE: scroll_by(screen, -page); break;
    case KEY_NPAGE: scroll_by(screen, page); break;
    case KEY_HOME: screen->top = 0; break;
    case KEY_END: scroll_by(screen, screen->rows); break;
    default: break;
    }
}

static void hear_keys(struct screen *screen, short events) {
    int key;
    while (!screen->over && (key = getch()) != ERR) {
        if (screen->typing)
            type_into_filter(screen, key);
        else
            act_on(screen, key);
    }
    if (events & (POLLHUP | POLLERR | POLLNVAL)) screen->over = true; /* the terminal is gone */
}

static void fit_terminal(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
}

/* Stops this process at Ctrl-Z, after the terminal's modes are restored. Returns when the process is continued. */
static void stop(void) {
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGTSTP);
    endwin();
    sigaction(SIGTSTP, &standard, NULL); /* curses has installed a handler */
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    pthread_sigmask(SIG_BLOCK, &only, NULL);
}

/* Sets up the screen again after a stop, during which other programs used the terminal. */
static void go_on(void) {
    reset_prog_mode();
    clearok(curscr, TRUE);
    fit_terminal();
}

static void hear_signals(struct screen *screen) {
    struct signalfd_siginfo info;
    while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGWINCH: fit_terminal(); break;
        case SIGTSTP: stop(); break;
        case SIGCONT: go_on(); break;
        default: screen->sig = (int)info.ssi_signo; break;
        }
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

bool screen_usable(void) {
    int why;
    setlocale(LC_CTYPE, "");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return false;
    if (setupterm(NULL, STDOUT_FILENO, &why) != OK) return false;
    const char *moves = tigetstr("cup"); /* moves the cursor; a "dumb" terminal has none */
    bool usable = moves && moves != (const char *)-1;
    del_curterm(cur_term);
    return usable;
}

/* Blocks the signals whose default action ends or stops a process, except those inherited as ignored, and reads them
 * from a signalfd: so the terminal's modes are restored before the process dies or stops. */
int screen_signals(void) {
    static const int defaults[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                   SIGUSR2, SIGALRM, SIGPIPE, SIGXCPU, SIGTSTP};
    sigset_t heard;
    sigemptyset(&heard);
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        struct sigaction action;
        if (sigaction(defaults[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL) sigaddset(&heard, defaults[i]);
    }
    sigaddset(&heard, SIGWINCH);
    sigaddset(&heard, SIGCONT);
    sigprocmask(SIG_BLOCK, &heard, NULL);
    signal_fd = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    return signal_fd < 0 ? -1 : 0;
}

static bool begin(void) {
    terminal = newterm(NULL, stdout, stdin);
    if (!terminal) return false;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    return true;
}

static void end(void) {
    curs_set(1);
    endwin();
    delscreen(terminal);
}

static void run(struct screen *screen, long count) {
    long looks = 0;
    while (!screen->over && !screen->sig && !watch_hopeless(screen->watch) && (count == 0 || looks < count)) {
        draw(screen);
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {signal_fd, POLLIN, 0}, {screen->watch->done_fd, POLLIN, 0}};
        if (poll(fds, 3, watch_step(screen->watch)) <= 0) continue;
        if (fds[0].revents) hear_keys(screen, fds[0].revents);
        if (fds[1].revents) hear_signals(screen);
        if (fds[2].revents && watch_took(screen->watch)) looks++;
    }
}

int screen_run(struct watch *watch, long count) {
    struct screen screen = {.watch = watch};
    if (!begin()) {
        note("cannot draw on this terminal");
        return watch_close(watch, STATUS_OS);
    }
    run(&screen, count);
    end();
    if (screen.sig) signals_die(screen.sig);
    if (watch_hopeless(watch)) return watch_close(watch, report(&watch->last->err));
    return watch_close(watch, STATUS_OK);
}
