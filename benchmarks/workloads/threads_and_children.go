// threads_and_children N: N goroutines that each hold a thread of their own, work until the runtime preempts them
// (SIGURG), and start /bin/true.
package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
)

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for number := 0; number < count; number++ {
		all.Add(1)
		slots <- struct{}{}
		go func() {
			defer all.Done()
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			sum := 0
			for step := 0; step < 20_000_000; step++ {
				sum += step
			}
			if err := exec.Command("/bin/true").Run(); err != nil || sum == 0 {
				panic(err)
			}
			<-slots
		}()
	}
	all.Wait()
}
