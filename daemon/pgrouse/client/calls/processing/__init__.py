"""What a worker calls: it registers, claims messages, reports, settles attempts, sleeps."""
