// redsync. The contract of a runner is in ../../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const eventsMax = 200_000

var (
	url       = flag.String("url", "", "")
	variant   = flag.String("variant", "default", "")
	name      = flag.String("name", "", "")
	tasks     = flag.Int("tasks", 1, "")
	ownNames  = flag.Int("own-names", 0, "")
	sectionUs = flag.Int("section-us", 0, "")
	seconds   = flag.Float64("seconds", 1, "")
	_         = flag.Int("process", 0, "")
)

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

type notes struct {
	sync.Mutex
	acquisitions int64
	waits        map[int]int64
	waitMax      float64
	events       [][2]int64
}

func (n *notes) wait(nanos int64) {
	micros := float64(nanos) / 1e3
	bucket := int(math.Floor(20 * math.Log10(micros+1)))
	n.waits[bucket]++
	n.waitMax = math.Max(n.waitMax, micros)
}

func work(rs *redsync.Redsync, key string, n *notes, ctx context.Context, end int64) error {
	options := []redsync.Option{redsync.WithExpiry(30 * time.Second), redsync.WithTries(math.MaxInt32)}
	if *variant == "fastest" {
		options = append(options, redsync.WithRetryDelay(time.Millisecond))
	}
	keep := *tasks == 1 && *ownNames == 0
	for monotonic() < end {
		mutex := rs.NewMutex(key, options...)
		asked := monotonic()
		err := mutex.LockContext(ctx)
		acquired := monotonic()
		n.Lock()
		n.wait(acquired - asked)
		if err == nil {
			n.acquisitions++
		}
		n.Unlock()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if *sectionUs > 0 {
			time.Sleep(time.Duration(*sectionUs) * time.Microsecond)
		}
		if keep && len(n.events) < eventsMax {
			n.events = append(n.events, [2]int64{acquired, monotonic()})
		}
		if _, err := mutex.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func run() error {
	flag.Parse()
	var pools []redsyncredis.Pool
	for _, one := range strings.Split(*url, ",") {
		address, err := redis.ParseURL(one)
		if err != nil {
			return err
		}
		client := redis.NewClient(address)
		if err := client.Ping(context.Background()).Err(); err != nil {
			return err
		}
		pools = append(pools, goredis.NewPool(client))
	}
	rs := redsync.New(pools...)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	n := &notes{waits: map[int]int64{}, events: [][2]int64{}}
	start := monotonic()
	span := time.Duration(*seconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	var group sync.WaitGroup
	failures := make(chan error, *tasks)
	for task := 0; task < *tasks; task++ {
		key := *name
		if *ownNames == 1 {
			key = fmt.Sprintf("%s/%d", *name, task)
		}
		group.Add(1)
		go func() {
			defer group.Done()
			if err := work(rs, key, n, ctx, start+span.Nanoseconds()); err != nil {
				failures <- err
			}
		}()
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	waits := [][2]int64{}
	for bucket, count := range n.waits {
		waits = append(waits, [2]int64{int64(bucket), count})
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"library":      "redsync",
		"version":      version(),
		"variant":      *variant,
		"acquisitions": n.acquisitions,
		"seconds":      math.Min(float64(monotonic()-start)/1e9, *seconds),
		"wait_us":      waits,
		"wait_max_us":  n.waitMax,
		"events":       n.events,
	})
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/go-redsync/redsync/v4" {
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
