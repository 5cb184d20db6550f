// redsync, and the mutex of etcd's own client. The contract of a runner is in ../../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"
)

const (
	heldMax = 200_000
	ttl     = 30 * time.Second
)

var (
	library   = flag.String("library", "", "")
	_         = flag.String("primitive", "mutex", "")
	url       = flag.String("url", "", "")
	variant   = flag.String("variant", "default", "")
	name      = flag.String("name", "", "")
	tasks     = flag.Int("tasks", 1, "")
	ownNames  = flag.Int("own-names", 0, "")
	sectionUs = flag.Int("section-us", 0, "")
)

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// The result of one window.
type window struct {
	mutex        sync.Mutex
	end          int64
	Version      string        `json:"version"`
	Acquisitions int64         `json:"acquisitions"`
	WaitUs       map[int]int64 `json:"wait_us"`
	WaitMaxUs    float64       `json:"wait_max_us"`
	PairUs       map[int]int64 `json:"pair_us"`
	SectionUs    map[int]int64 `json:"section_us"`
	Held         [][2]int64    `json:"held"`
}

func count(histogram map[int]int64, nanos int64) float64 {
	micros := float64(nanos) / 1e3
	histogram[int(math.Floor(200*math.Log10(micros+1)))]++
	return micros
}

func (w *window) wait(nanos int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.WaitMaxUs = math.Max(w.WaitMaxUs, count(w.WaitUs, nanos))
}

func (w *window) pair(nanos int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.Acquisitions++
	count(w.PairUs, nanos)
}

func (w *window) section(nanos int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	count(w.SectionUs, nanos)
}

// The lock of one task.
type lock interface {
	acquire() error
	release() error
}

type redsyncLock struct {
	redsync *redsync.Redsync
	name    string
	options []redsync.Option
	mutex   *redsync.Mutex
}

func (l *redsyncLock) acquire() error {
	l.mutex = l.redsync.NewMutex(l.name, l.options...)
	return l.mutex.Lock()
}

func (l *redsyncLock) release() error {
	_, err := l.mutex.Unlock()
	return err
}

func connectRedsync() (func(string) (lock, error), error) {
	var pools []redsyncredis.Pool
	for _, one := range strings.Split(*url, ",") {
		address, err := redis.ParseURL(one)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(address)
		if err := client.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	options := []redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32)}
	if *variant == "fastest" {
		options = append(options, redsync.WithRetryDelay(time.Millisecond))
	}
	return func(name string) (lock, error) {
		return &redsyncLock{redsync: rs, name: name, options: options}, nil
	}, nil
}

type etcdLock struct{ mutex *concurrency.Mutex }

func (l etcdLock) acquire() error { return l.mutex.Lock(context.Background()) }

func (l etcdLock) release() error { return l.mutex.Unlock(context.Background()) }

func connectEtcd() (func(string) (lock, error), error) {
	endpoints := strings.Split(strings.TrimPrefix(*url, "etcd://"), ",")
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	var session *concurrency.Session
	return func(name string) (lock, error) {
		// Mutexes of one session on one name are one contender. Those of different names can share it.
		if session == nil || *ownNames == 0 {
			session, err = concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
			if err != nil {
				return nil, err
			}
		}
		return etcdLock{concurrency.NewMutex(session, name)}, nil
	}, nil
}

func (w *window) work(l lock) error {
	keepHeld := *tasks == 1 && *ownNames == 0
	for asked := monotonic(); asked < w.end; asked = monotonic() {
		if err := l.acquire(); err != nil {
			return err
		}
		acquired := monotonic()
		w.wait(min(acquired, w.end) - asked)
		counts := acquired < w.end
		if counts && *sectionUs > 0 {
			// By the clock, as timers are late.
			for monotonic() < acquired+int64(*sectionUs)*1_000 {
				runtime.Gosched()
			}
			w.section(monotonic() - acquired)
		}
		if counts && keepHeld && len(w.Held) < heldMax {
			w.Held = append(w.Held, [2]int64{acquired, monotonic()})
		}
		if err := l.release(); err != nil {
			return err
		}
		if counts {
			w.pair(monotonic() - asked)
		}
	}
	return nil
}

func (w *window) run(locks []lock) error {
	failures := make(chan error, len(locks))
	for _, l := range locks {
		go func() { failures <- w.work(l) }()
	}
	for range locks {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

func run() error {
	flag.Parse()
	connect, module := connectRedsync, "github.com/go-redsync/redsync/v4"
	if *library == "etcd" {
		connect, module = connectEtcd, "go.etcd.io/etcd/client/v3"
	}
	create, err := connect()
	if err != nil {
		return err
	}
	var locks []lock
	for task := 0; task < *tasks; task++ {
		key := *name
		if *ownNames == 1 {
			key = fmt.Sprintf("%s/%d", *name, task)
		}
		l, err := create(key)
		if err != nil {
			return err
		}
		locks = append(locks, l)
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		seconds, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return err
		}
		w := &window{
			Version:   version(module),
			WaitUs:    map[int]int64{},
			PairUs:    map[int]int64{},
			SectionUs: map[int]int64{},
			Held:      [][2]int64{},
		}
		w.end = monotonic() + int64(seconds*1e9)
		if err := w.run(locks); err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(w); err != nil {
			return err
		}
	}
	return lines.Err()
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return ""
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
