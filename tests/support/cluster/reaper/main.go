// Command reaper is process 1 of a machine or of a pod: it collects orphans that ended, and ends when told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The kernel collects children of a process that ignores SIGCHLD; no loop of ours has to.
	signal.Ignore(syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
