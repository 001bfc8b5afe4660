import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Path;

/** Runs HiveMQ in a folder until the process is ended; `Serve FOLDER`. */
public class Serve {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        EmbeddedHiveMQ broker = EmbeddedHiveMQ.builder()
            .withConfigurationFolder(folder.resolve("conf"))
            .withDataFolder(folder.resolve("data"))
            .withExtensionsFolder(folder.resolve("extensions"))
            .build();
        broker.start().join();
        Thread.currentThread().join();
    }
}
